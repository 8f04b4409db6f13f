#include <fmt/format.h>
#include <simdjson.h>

#include <nlohmann/json.hpp>

#include "json_reader.h"
#include "k3pod/base/file.h"
#include "k3pod/placement/placement.h"
#include "tiling.h"

namespace k3pod {
namespace {

constexpr std::string_view kFormat = "k3pod-placement-1";
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;  // the real pod's, sliced over eight, has 13 MB

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_expert(fmt::memory_buffer& out, std::span<const PlacedSlice> slices) {
    const char* separator = "[";
    for (const auto& [begin, end, holder] : slices) {
        fmt::format_to(std::back_inserter(out), "{}[{},{},{}]", separator, begin, end, holder);
        separator = ",";
    }
    out.append(std::string_view(slices.empty() ? "[]" : "]"));
}

void append_replicas(fmt::memory_buffer& out, std::span<const Replica> replicas) {
    if (replicas.empty()) return;
    const char* separator = ",\n\"replicas\": [";
    for (const Replica& replica : replicas) {
        fmt::format_to(std::back_inserter(out), "{}\n[{},{},", separator, replica.layer,
                       replica.expert);
        append_expert(out, replica.slices);
        out.push_back(']');
        separator = ",";
    }
    out.append(std::string_view("\n]"));
}

Status read_holders(JsonValue value, std::vector<std::string>& out) {
    simdjson::dom::array list;
    if (value.get(list)) return unexpected(value, "a list of node names").with_context("holders");
    for (const JsonValue item : list) {
        std::string_view name;
        if (item.get(name)) {
            return unexpected(item, "the name of a node")
                .with_context(fmt::format("holders[{}]", out.size()));
        }
        out.emplace_back(name);
    }
    return Status::ok();
}

// [[begin, end, holder], ...]
Status read_expert(JsonValue value, std::vector<PlacedSlice>& out) {
    simdjson::dom::array list;
    if (value.get(list)) return unexpected(value, "a list of slices");
    for (const JsonValue item : list) {
        simdjson::dom::array numbers;
        if (item.get(numbers) || numbers.size() != 3) {
            return unexpected(item, "[begin, end, holder]");
        }
        PlacedSlice& slice = out.emplace_back();
        int32_t* const parts[] = {&slice.begin, &slice.end, &slice.holder};
        int32_t* const* part = parts;
        for (const JsonValue number : numbers) K3POD_TRY(read_integer(number, **part++));
    }
    return Status::ok();
}

// layers[layer][expert] is a list of slices.
Status read_layers(JsonValue value, Placement& placement) {
    const auto num_layers = static_cast<size_t>(placement.num_layers);
    const auto num_experts = static_cast<size_t>(placement.num_experts);
    simdjson::dom::array layers;
    if (value.get(layers) || layers.size() != num_layers) {
        return unexpected(value, fmt::format("a list of {} layers", num_layers))
            .with_context("layers");
    }
    int32_t layer_idx = 0;
    for (const JsonValue layer : layers) {
        const int32_t layer_id = placement.first_layer + layer_idx;
        simdjson::dom::array experts;
        if (layer.get(experts) || experts.size() != num_experts) {
            return unexpected(layer, fmt::format("a list of {} experts", num_experts))
                .with_context(fmt::format("layers[{}] (layer {})", layer_idx, layer_id));
        }
        int32_t expert_id = 0;
        for (const JsonValue expert : experts) {
            const Status status = read_expert(expert, placement.slices.emplace_back());
            if (!status) {
                return status.with_context(fmt::format("layers[{0}][{2}] (layer {1}, expert {2})",
                                                       layer_idx, layer_id, expert_id));
            }
            ++expert_id;
        }
        ++layer_idx;
    }
    return Status::ok();
}

// [layer, expert, [[begin, end, holder], ...]]
Status read_replica(JsonValue value, Replica& out) {
    simdjson::dom::array parts;
    if (value.get(parts) || parts.size() != 3) {
        return unexpected(value, "[layer, expert, slices]");
    }
    K3POD_TRY(read_integer(parts.at(0).value_unsafe(), out.layer));
    K3POD_TRY(read_integer(parts.at(1).value_unsafe(), out.expert));
    return read_expert(parts.at(2).value_unsafe(), out.slices);
}

Status read_replicas(JsonValue value, std::vector<Replica>& out) {
    simdjson::dom::array list;
    if (value.get(list) || list.size() == 0) {
        return unexpected(value, "a list of replicas; leave the field out when there are none")
            .with_context("replicas");
    }
    for (const JsonValue item : list) {
        const std::string place = fmt::format("replicas[{}]", out.size());
        K3POD_TRY(read_replica(item, out.emplace_back()).with_context(place));
    }
    return Status::ok();
}

Result<Placement> read_document(JsonValue document) {
    constexpr std::string_view kKeys[] = {"format",      "epoch", "first_layer", "num_layers",
                                          "num_experts", "width", "holders",     "layers"};
    constexpr std::string_view kReplicas = "replicas";
    K3POD_ASSIGN(const JsonFields fields, split_fields(document, kKeys, kReplicas));
    K3POD_TRY(check_format(fields, kFormat));
    Placement placement;
    K3POD_TRY(read_integer(fields, "epoch", placement.epoch));
    K3POD_TRY(read_integer(fields, "first_layer", placement.first_layer));
    K3POD_TRY(read_integer(fields, "num_layers", placement.num_layers));
    K3POD_TRY(read_integer(fields, "num_experts", placement.num_experts));
    K3POD_TRY(read_integer(fields, "width", placement.width));
    K3POD_TRY(check_counts(placement.first_layer, placement.num_layers, placement.num_experts,
                           placement.width));
    K3POD_TRY(read_holders(fields.at("holders"), placement.holders));
    K3POD_TRY(read_layers(fields.at("layers"), placement));
    if (const auto replicas = fields.find(kReplicas); replicas != fields.end()) {
        K3POD_TRY(read_replicas(replicas->second, placement.replicas));
    }
    K3POD_TRY(check_tiling(placement));
    return placement;
}

}  // namespace

std::string to_json(const Placement& placement) {
    fmt::memory_buffer out;
    const auto to = std::back_inserter(out);
    fmt::format_to(to, "{{\n\"format\": \"{}\",\n\"epoch\": {},\n", kFormat, placement.epoch);
    fmt::format_to(to, "\"first_layer\": {},\n\"num_layers\": {},\n", placement.first_layer,
                   placement.num_layers);
    fmt::format_to(to, "\"num_experts\": {},\n\"width\": {},\n\"holders\": [",
                   placement.num_experts, placement.width);
    for (size_t i = 0; i < placement.holders.size(); ++i) {
        fmt::format_to(to, "{}{}", i > 0 ? ", " : "", quoted(placement.holders[i]));
    }
    fmt::format_to(to, "],\n\"layers\": [");
    for (int32_t layer = 0; layer < placement.num_layers; ++layer) {
        fmt::format_to(to, "{}\n[", layer > 0 ? "," : "");
        for (int32_t expert = 0; expert < placement.num_experts; ++expert) {
            if (expert > 0) out.push_back(',');
            append_expert(out, placement.of(placement.first_layer + layer, expert));
        }
        out.push_back(']');
    }
    fmt::format_to(to, "\n]");
    append_replicas(out, placement.replicas);
    fmt::format_to(to, "\n}}\n");
    return fmt::to_string(out);
}

Result<Placement> parse_placement(std::string_view json) {
    simdjson::dom::parser parser;
    K3POD_ASSIGN(const JsonValue document, parse_json(json, parser));
    return read_document(document);
}

Result<Placement> read_placement(const std::filesystem::path& file) {
    K3POD_ASSIGN(const std::string text, read_text_file(file, kMaxFileBytes));
    Result<Placement> placement = parse_placement(text);
    if (!placement) return placement.status().with_context(file.string());
    return placement;
}

}  // namespace k3pod

#include <algorithm>

#include "json_reader.h"
#include "k3pod/base/file.h"
#include "k3pod/placement/popularity.h"
#include "tiling.h"

namespace k3pod {
namespace {

constexpr std::string_view kFormat = "k3pod-trace-1";
// Sums of picks, times the experts that a token can pick, stay within 64 bits.
constexpr int64_t kMaxTokens = int64_t{1} << 40;

Status read_layer(JsonValue value, PickTrace& trace) {
    simdjson::dom::array counts;
    if (value.get(counts) || counts.size() != static_cast<size_t>(trace.num_experts)) {
        return unexpected(value, fmt::format("a list of {} counts", trace.num_experts));
    }
    for (const JsonValue count : counts) {
        int64_t& picks = trace.picks.emplace_back();
        K3POD_TRY(read_integer(count, picks));
        if (picks > trace.tokens) {
            return unexpected(count, fmt::format("at most tokens, {}", trace.tokens));
        }
    }
    return Status::ok();
}

Status read_layers(JsonValue value, PickTrace& trace) {
    simdjson::dom::array layers;
    if (value.get(layers) || layers.size() != static_cast<size_t>(trace.num_layers)) {
        return unexpected(value, fmt::format("a list of {} layers", trace.num_layers))
            .with_context("picks");
    }
    int32_t layer_idx = 0;
    for (const JsonValue layer : layers) {
        K3POD_TRY(read_layer(layer, trace)
                      .with_context(fmt::format("picks[{}] (layer {})", layer_idx,
                                                trace.first_layer + layer_idx)));
        ++layer_idx;
    }
    return Status::ok();
}

Result<PickTrace> read_document(JsonValue document) {
    constexpr std::string_view kKeys[] = {"format",      "first_layer", "num_layers",
                                          "num_experts", "tokens",      "picks"};
    K3POD_ASSIGN(const JsonFields fields, split_fields(document, kKeys));
    K3POD_TRY(check_format(fields, kFormat));
    PickTrace trace;
    K3POD_TRY(read_integer(fields, "first_layer", trace.first_layer));
    K3POD_TRY(read_integer(fields, "num_layers", trace.num_layers));
    K3POD_TRY(read_integer(fields, "num_experts", trace.num_experts));
    K3POD_TRY(check_counts(trace.first_layer, trace.num_layers, trace.num_experts, kSliceMultiple));
    K3POD_TRY(read_integer(fields, "tokens", trace.tokens));
    if (trace.tokens < 1 || trace.tokens > kMaxTokens) {
        return unexpected(fields.at("tokens"), fmt::format("1 to {}", kMaxTokens))
            .with_context("tokens");
    }
    K3POD_TRY(read_layers(fields.at("picks"), trace));
    return trace;
}

}  // namespace

std::string to_json(const PickTrace& trace) {
    fmt::memory_buffer out;
    const auto to = std::back_inserter(out);
    fmt::format_to(to,
                   "{{\n\"format\": \"{}\",\n\"first_layer\": {},\n\"num_layers\": {},\n"
                   "\"num_experts\": {},\n\"tokens\": {},\n\"picks\": [",
                   kFormat, trace.first_layer, trace.num_layers, trace.num_experts, trace.tokens);
    const auto num_experts = static_cast<size_t>(trace.num_experts);
    for (size_t i = 0; i < trace.picks.size(); ++i) {
        const bool is_first = i % num_experts == 0;
        fmt::format_to(to, "{}{}", is_first ? (i == 0 ? "\n[" : "],\n[") : ",", trace.picks[i]);
    }
    fmt::format_to(to, "{}\n]\n}}\n", trace.picks.empty() ? "" : "]");
    return fmt::to_string(out);
}

Result<PickTrace> parse_trace(std::string_view json) {
    simdjson::dom::parser parser;
    K3POD_ASSIGN(const JsonValue document, parse_json(json, parser));
    return read_document(document);
}

Result<PickTrace> read_trace(const std::filesystem::path& file) {
    K3POD_ASSIGN(const std::string text, read_text_file(file));
    Result<PickTrace> trace = parse_trace(text);
    if (!trace) return trace.status().with_context(file.string());
    return trace;
}

}  // namespace k3pod

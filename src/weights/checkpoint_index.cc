#include "checkpoint_index.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cstring>
#include <unordered_map>

#include "k3pod/base/file.h"
#include "k3pod/base/text.h"

namespace k3pod {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr int64_t kMaxIndexBytes = int64_t{1} << 30;  // A million tensors take 130 MB.
constexpr size_t kMaxTensors = 1 << 28;

Status json_error(simdjson::error_code error) {
    return data_loss(fmt::format("not a safetensors index: {}", simdjson::error_message(error)));
}

class WeightMapReader {
  public:
    explicit WeightMapReader(std::pmr::memory_resource& names) : names_(names) {}

    Status read(ondemand::value value) {
        ondemand::object map;
        if (const auto error = value.get_object().get(map)) return json_error(error);
        for (auto result : map) {
            ondemand::field field;
            std::string_view tensor, file;
            if (const auto error = std::move(result).get(field)) return json_error(error);
            if (const auto error = field.unescaped_key().get(tensor)) return json_error(error);
            if (const auto error = field.value().get_string().get(file)) return json_error(error);
            if (index_.entries.size() == kMaxTensors) {
                return data_loss(fmt::format("more than {} tensors", kMaxTensors));
            }
            K3POD_ASSIGN(const int32_t file_idx, file_index(file));
            index_.entries.push_back({keep(tensor), file_idx});
        }
        return Status::ok();
    }

    CheckpointIndex take() { return std::move(index_); }

  private:
    Result<int32_t> file_index(std::string_view name) {
        // Neighbours in the index mostly lie in the same file.
        if (!index_.entries.empty()) {
            const int32_t last = index_.entries.back().file;
            if (index_.files[static_cast<size_t>(last)] == name) return last;
        }
        const auto next = static_cast<int32_t>(index_.files.size());
        const auto [at, is_new] = file_ids_.try_emplace(std::string(name), next);
        if (!is_new) return at->second;
        if (name.empty() || name.front() == '.' || name.find('/') != std::string_view::npos ||
            name.find('\0') != std::string_view::npos) {
            return data_loss(
                fmt::format("file name \"{}\", expected the name of a file in the same "
                            "folder",
                            name.substr(0, 256)));
        }
        index_.files.emplace_back(name);
        return next;
    }

    std::string_view keep(std::string_view name) {
        char* copy = static_cast<char*>(names_.allocate(std::max<size_t>(name.size(), 1), 1));
        std::memcpy(copy, name.data(), name.size());
        return {copy, name.size()};
    }

    std::pmr::memory_resource& names_;
    std::unordered_map<std::string, int32_t> file_ids_;
    CheckpointIndex index_;
};

Result<CheckpointIndex> parse_index(const simdjson::padded_string& text,
                                    std::pmr::memory_resource& names) {
    const std::string_view json = without_bom(text);
    ondemand::parser parser;
    ondemand::document document;
    ondemand::object object;
    // The padding lies behind the text, with or without the mark.
    const simdjson::padded_string_view padded(json, json.size() + simdjson::SIMDJSON_PADDING);
    if (const auto error = parser.iterate(padded).get(document)) return json_error(error);
    if (const auto error = document.get_object().get(object)) return json_error(error);
    WeightMapReader reader(names);
    int num_maps = 0;
    for (auto result : object) {
        ondemand::field field;
        std::string_view key;
        if (const auto error = std::move(result).get(field)) return json_error(error);
        if (const auto error = field.unescaped_key().get(key)) return json_error(error);
        if (key != "weight_map") continue;
        ++num_maps;
        K3POD_TRY(reader.read(field.value()));
    }
    if (num_maps != 1) {
        return data_loss(
            fmt::format("field weight_map is there {} times, expected once", num_maps));
    }
    return reader.take();
}

}  // namespace

Result<CheckpointIndex> read_checkpoint_index(const std::filesystem::path& path,
                                              std::pmr::memory_resource& names) {
    K3POD_ASSIGN(const FileReader file, FileReader::open(path));
    if (file.size_bytes() > kMaxIndexBytes) {
        return data_loss(fmt::format("{} has {} bytes, the limit is {}", path.string(),
                                     file.size_bytes(), kMaxIndexBytes));
    }
    simdjson::padded_string text(static_cast<size_t>(file.size_bytes()));
    K3POD_TRY(file.read(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
    Result<CheckpointIndex> index = parse_index(text, names);
    if (!index) return index.status().with_context(path.string());
    return index;
}

}  // namespace k3pod

#include "tests/support/checkpoint_fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace k3pod::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kLengthBytes = 8;
constexpr int64_t kTile = 128;

// A vector's or scalar's number of values.
int64_t num_values(const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
}

template <class T>
T value_at(const EditableTensor& tensor, int64_t i) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
}

std::string length_field(uint64_t length) {
    std::string bytes(kLengthBytes, '\0');
    for (char& byte : bytes) {
        byte = static_cast<char>(length & 0xff);
        length >>= 8;
    }
    return bytes;
}

// The JSON of a shard and what lies behind it.
std::pair<ordered_json, std::string> split_shard(const fs::path& path) {
    const std::string bytes = read_file(path);
    uint64_t length = 0;
    for (size_t i = kLengthBytes; i-- > 0;)
        length = length << 8 | static_cast<uint8_t>(bytes.at(i));
    return {ordered_json::parse(bytes.substr(kLengthBytes, length)),
            bytes.substr(kLengthBytes + length)};
}

EditableShard load_shard(const fs::path& dir, const std::string& file) {
    const auto [header, payload] = split_shard(dir / file);
    EditableShard shard{file, {}};
    std::map<int64_t, EditableTensor> by_offset;
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") continue;
        const int64_t begin = entry["data_offsets"][0];
        const int64_t end = entry["data_offsets"][1];
        by_offset[begin] = {
            name, entry["dtype"], entry["shape"],
            payload.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin))};
    }
    for (auto& [begin, tensor] : by_offset) shard.tensors.push_back(std::move(tensor));
    return shard;
}

void save_shard(const fs::path& dir, const EditableShard& shard) {
    ordered_json header;
    header["__metadata__"] = {{"format", "pt"}};
    std::string payload;
    for (const EditableTensor& tensor : shard.tensors) {
        const size_t begin = payload.size();
        payload += tensor.bytes;
        header[tensor.name] = {{"dtype", tensor.dtype},
                               {"shape", tensor.shape},
                               {"data_offsets", {begin, payload.size()}}};
    }
    const std::string text = header.dump();
    write_file(dir / shard.file, length_field(text.size()) + text + payload);
}

float e4m3_value(uint8_t bits) {
    const int exponent = bits >> 3 & 15;
    const int mantissa = bits & 7;
    if ((bits & 0x7f) == 0x7f) throw std::runtime_error("an FP8 value is NaN");
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    return bits & 0x80 ? -magnitude : magnitude;
}

uint16_t rounded_to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The biased exponent of a pair of equal NVFP4 scales.
uint8_t e8m0_of(uint8_t low, uint8_t high, float factor) {
    const float scale = e4m3_value(low) * factor;
    int exponent = 0;
    if (low != high || (scale != 0 && std::frexp(scale, &exponent) != 0.5f)) {
        throw std::runtime_error("an NVFP4 block has no exact MXFP4 form");
    }
    return scale == 0 ? 127 : static_cast<uint8_t>(exponent - 1 + 127);
}

EditableTensor mxfp4_scales(const EditableTensor& scales, float factor, std::string name) {
    EditableTensor out{std::move(name), "U8", {scales.shape[0], scales.shape[1] / 2}, {}};
    for (size_t i = 0; i + 1 < scales.bytes.size(); i += 2) {
        out.bytes += static_cast<char>(e8m0_of(static_cast<uint8_t>(scales.bytes[i]),
                                               static_cast<uint8_t>(scales.bytes[i + 1]), factor));
    }
    return out;
}

void convert_expert(EditableCheckpoint& checkpoint, const std::string& module) {
    EditableTensor& scales = checkpoint.tensor(module + ".weight_scale");
    const float factor = value_at<float>(checkpoint.tensor(module + ".weight_scale_2"), 0);
    scales = mxfp4_scales(scales, factor, scales.name);
    EditableTensor& weight = checkpoint.tensor(module + ".weight");
    weight.name = module + ".weight_packed";
    checkpoint.drop(module + ".weight_scale_2");
    checkpoint.drop(module + ".input_scale");
}

// Modules that have a tensor with this suffix.
std::vector<std::string> modules_with(const EditableCheckpoint& checkpoint, std::string_view part,
                                      std::string_view suffix) {
    std::vector<std::string> modules;
    for (const EditableShard& shard : checkpoint.shards) {
        for (const EditableTensor& tensor : shard.tensors) {
            if (!tensor.name.ends_with(suffix) || tensor.name.find(part) == std::string::npos) {
                continue;
            }
            modules.push_back(tensor.name.substr(0, tensor.name.size() - suffix.size()));
        }
    }
    return modules;
}

json compressed_tensors_section() {
    return json::parse(R"json({
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "quantization_status": "compressed",
        "kv_cache_scheme": null,
        "config_groups": {"group_0": {
            "targets": ["Linear"],
            "input_activations": null,
            "output_activations": null,
            "weights": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32,
                        "symmetric": true, "dynamic": false, "scale_dtype": "torch.uint8"}}},
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*",
                   "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
                   "re:vision_tower.*", "re:mm_projector.*"]})json");
}

}  // namespace

TempFolder::TempFolder() {
    std::string name = (fs::temp_directory_path() / "k3pod-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
}

TempFolder::~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

EditableCheckpoint::EditableCheckpoint(const fs::path& dir)
    : config(json::parse(read_file(dir / "config.json"))), source_(dir) {
    const json index = json::parse(read_file(dir / "model.safetensors.index.json"));
    std::vector<std::string> files;
    for (const auto& [name, file] : index.at("weight_map").items()) files.push_back(file);
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    for (const std::string& file : files) shards.push_back(load_shard(dir, file));
}

void EditableCheckpoint::save(const fs::path& dir) const {
    fs::create_directories(dir);
    for (const auto& entry : fs::directory_iterator(source_)) {
        const std::string name = entry.path().filename().string();
        if (name.find(".safetensors") != std::string::npos || name == "config.json") continue;
        fs::copy_file(entry.path(), dir / name, fs::copy_options::overwrite_existing);
    }
    std::vector<std::pair<std::string, std::string>> weight_map;
    for (const EditableShard& shard : shards) {
        save_shard(dir, shard);
        for (const EditableTensor& tensor : shard.tensors) {
            weight_map.emplace_back(tensor.name, shard.file);
        }
    }
    write_index(dir, weight_map);
    write_file(dir / "config.json", config.dump(1));
}

EditableTensor& EditableCheckpoint::tensor(std::string_view name) {
    for (EditableShard& shard : shards) {
        for (EditableTensor& tensor : shard.tensors) {
            if (tensor.name == name) return tensor;
        }
    }
    throw std::runtime_error(fmt::format("the checkpoint has no tensor {}", name));
}

void EditableCheckpoint::drop(std::string_view name) {
    (void)tensor(name);
    for (EditableShard& shard : shards) {
        std::erase_if(shard.tensors, [&](const EditableTensor& t) { return t.name == name; });
    }
}

void store_as_bf16(EditableCheckpoint& checkpoint, const std::string& module) {
    const EditableTensor& scales = checkpoint.tensor(module + ".weight_scale");
    EditableTensor& weight = checkpoint.tensor(module + ".weight");
    const int64_t rows = weight.shape[0], cols = weight.shape[1];
    const int64_t tile_cols = (cols + kTile - 1) / kTile;
    std::string bytes(static_cast<size_t>(rows * cols) * sizeof(uint16_t), '\0');
    for (int64_t i = 0; i < rows * cols; ++i) {
        const int64_t tile = i / cols / kTile * tile_cols + i % cols / kTile;
        const float value =
            e4m3_value(value_at<uint8_t>(weight, i)) * value_at<float>(scales, tile);
        const uint16_t bf16 = rounded_to_bf16(value);
        std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(bf16), &bf16, sizeof(bf16));
    }
    weight.dtype = "BF16";
    weight.bytes = std::move(bytes);
    checkpoint.drop(module + ".weight_scale");
}

void convert_to_mxfp4(EditableCheckpoint& checkpoint) {
    for (const std::string& module : modules_with(checkpoint, ".self_attn.", ".weight_scale")) {
        store_as_bf16(checkpoint, module);
    }
    for (const std::string& module : modules_with(checkpoint, ".experts.", ".weight_scale_2")) {
        convert_expert(checkpoint, module);
    }
    for (EditableShard& shard : checkpoint.shards) {
        std::sort(shard.tensors.begin(), shard.tensors.end(),
                  [](const auto& a, const auto& b) { return a.name < b.name; });
    }
    checkpoint.config.erase("quantization_config");
    checkpoint.config["text_config"]["quantization_config"] = compressed_tensors_section();
}

void set_nan(EditableTensor& tensor, int64_t value_idx) {
    const std::map<std::string, std::string> nans = {{"F8_E4M3", "\x7f"},
                                                     {"U8", "\xff"},
                                                     {"BF16", std::string("\xc0\x7f")},
                                                     {"F32", std::string("\0\0\xc0\x7f", 4)}};
    const std::string& nan = nans.at(tensor.dtype);
    if (value_idx < 0 || value_idx >= num_values(tensor.shape)) {
        throw std::runtime_error(fmt::format("tensor {} has {} values, not one at {}", tensor.name,
                                             num_values(tensor.shape), value_idx));
    }
    tensor.bytes.replace(static_cast<size_t>(value_idx) * nan.size(), nan.size(), nan);
}

void write_file(const fs::path& path, std::string_view bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    if (!file || !(bytes << file.rdbuf())) throw std::runtime_error("cannot read " + path.string());
    return std::move(bytes).str();
}

void write_shard(const fs::path& path, std::string_view header, int64_t payload_bytes) {
    write_file(path, length_field(header.size()) + std::string(header));
    fs::resize_file(path, kLengthBytes + header.size() + static_cast<uint64_t>(payload_bytes));
}

void write_index(const fs::path& dir,
                 const std::vector<std::pair<std::string, std::string>>& weight_map) {
    std::string text = "{\"metadata\": {},\n\"weight_map\": {";
    const char* separator = "\n";
    for (const auto& [tensor, file] : weight_map) {
        text += fmt::format("{}{}: {}", separator, json(tensor).dump(), json(file).dump());
        separator = ",\n";
    }
    write_file(dir / "model.safetensors.index.json", text + "\n}}\n");
}

void edit_header(const fs::path& path, const std::function<void(ordered_json&)>& edit) {
    auto [header, payload] = split_shard(path);
    edit(header);
    const std::string text = header.dump();
    write_file(path, length_field(text.size()) + text + payload);
}

}  // namespace k3pod::testing

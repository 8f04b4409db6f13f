#pragma once
// Checkpoints to test with: copies of a small model that can be edited, damaged and converted, and
// hand-written safetensors files. Failures throw: a fixture that does not come about is no test.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace k3pod::testing {

// A new empty folder, removed with everything in it at the end.
class TempFolder {
  public:
    TempFolder();
    ~TempFolder();
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

struct EditableTensor {
    std::string name;
    std::string dtype;  // as in the file, "F8_E4M3"
    std::vector<int64_t> shape;
    std::string bytes;
};

struct EditableShard {
    std::string file;
    std::vector<EditableTensor> tensors;  // in the order of their bytes
};

// A model folder with all its tensors in memory.
class EditableCheckpoint {
  public:
    explicit EditableCheckpoint(const std::filesystem::path& dir);

    // Writes shards, index and config into `dir`, which is created, and copies every other file.
    void save(const std::filesystem::path& dir) const;

    EditableTensor& tensor(std::string_view name);
    // Removes the tensor from its shard and, with that, from the index.
    void drop(std::string_view name);

    nlohmann::json config;
    std::vector<EditableShard> shards;

  private:
    std::filesystem::path source_;
};

// One module of attention as BF16 instead of FP8 tiles, as a release may keep it. Config untouched.
void store_as_bf16(EditableCheckpoint& checkpoint, const std::string& module);

// The same model in the layout of the MXFP4 release: BF16 attention (rounded from the FP8 values),
// experts with one E8M0 scale per 32 inputs (exact), config with a compressed-tensors section.
void convert_to_mxfp4(EditableCheckpoint& checkpoint);

// Makes one value of the tensor NaN: a scale byte (F8_E4M3, U8) or a BF16 or F32 number.
void set_nan(EditableTensor& tensor, int64_t value_idx);

// Files below the level of a checkpoint.
void write_file(const std::filesystem::path& path, std::string_view bytes);
std::string read_file(const std::filesystem::path& path);
// `header` behind its length field, then `payload_bytes` zeros that take no room on disk.
void write_shard(const std::filesystem::path& path, std::string_view header, int64_t payload_bytes);
// The index of `dir`: (tensor, file) pairs in order, repeats included.
void write_index(const std::filesystem::path& dir,
                 const std::vector<std::pair<std::string, std::string>>& weight_map);
// Changes the header of a shard on disk; the bytes behind it stay as they are.
void edit_header(const std::filesystem::path& path,
                 const std::function<void(nlohmann::ordered_json&)>& edit);

}  // namespace k3pod::testing

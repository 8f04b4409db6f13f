#pragma once
// model.safetensors.index.json: which file holds which tensor.

#include <cstdint>
#include <filesystem>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

struct CheckpointIndex {
    struct Entry {
        std::string_view tensor;  // In the memory given to read_checkpoint_index.
        int32_t file;             // Index into `files`.
    };
    std::vector<std::string> files;  // Plain names, in the order of their first mention.
    std::vector<Entry> entries;      // In the file's order; names may repeat.
};

// `names` receives the tensors' names. Messages start with the path.
Result<CheckpointIndex> read_checkpoint_index(const std::filesystem::path& path,
                                              std::pmr::memory_resource& names);

}  // namespace k3pod

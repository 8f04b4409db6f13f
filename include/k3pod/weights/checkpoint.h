#pragma once
// A safetensors checkpoint with model.safetensors.index.json, opened for reading: headers checked,
// no tensor read. Opening a million-tensor index takes seconds. Thread-safe after open.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/weights/safetensors.h"

namespace k3pod {

class Checkpoint {
  public:
    // Reads the index and the header of every shard file it names. Refuses, naming file, tensor,
    // found and expected: missing or truncated files, headers over the limit (100 MB) or that are
    // not JSON, offsets that overlap or leave the file, sizes that disagree with shape x dtype,
    // tensors in the index but not in their file and the other way round, duplicate names.
    static Result<Checkpoint> open(const std::filesystem::path& dir);

    Checkpoint(Checkpoint&&) noexcept;
    Checkpoint& operator=(Checkpoint&&) noexcept;
    ~Checkpoint();

    const std::filesystem::path& dir() const;
    int64_t num_tensors() const;
    int64_t total_bytes() const;
    // nullptr when absent. O(1).
    const TensorInfo* find(std::string_view name) const;
    const std::vector<TensorInfo>& tensors() const;
    const std::filesystem::path& file_path(int32_t file) const;

    // Reads bytes [begin, begin + out.size()) of the tensor, and leaves nothing of them in the page
    // cache. Any thread. kDataLoss when the file is shorter than it was at open.
    Status read(const TensorInfo& tensor, int64_t begin, std::span<std::byte> out) const;
    // Drops what the kernel has read ahead of a file. Any thread.
    void drop_cached(int32_t file) const;

  private:
    struct Impl;
    explicit Checkpoint(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace k3pod

#pragma once
// A file opened for reading at positions. Movable; closed on destruction. Reads are thread-safe.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "k3pod/base/status.h"

namespace k3pod {

class FileReader {
  public:
    // kNotFound with the reason of the operating system; kDataLoss when it is not a regular file.
    static Result<FileReader> open(const std::filesystem::path& path);

    FileReader(FileReader&& other) noexcept;
    FileReader& operator=(FileReader&& other) noexcept;
    ~FileReader();

    const std::filesystem::path& path() const { return path_; }
    // Size when it was opened.
    int64_t size_bytes() const { return size_bytes_; }

    // Fills `out` from byte `offset` on; kDataLoss when the file ends early.
    Status read(int64_t offset, std::span<std::byte> out) const;

  private:
    FileReader(std::filesystem::path path, int fd);

    std::filesystem::path path_;
    int fd_ = -1;
    int64_t size_bytes_ = 0;
};

}  // namespace k3pod

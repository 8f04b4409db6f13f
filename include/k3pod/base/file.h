#pragma once
// Files as input. Only a regular file is read: a pipe would hold the start up for ever and a device
// has no end, so anything else of that name is refused at once, with what it is.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "k3pod/base/status.h"

namespace k3pod {

// A file opened for reading at positions. Movable; closed on destruction. Reads are thread-safe.
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
    // As read(), and does not leave these bytes in the page cache, which on a machine with unified
    // memory would take the place of what is loaded. For files that are read once, front to back.
    Status read_once(int64_t offset, std::span<std::byte> out) const;
    // Drops what the page cache still has of the file, read ahead and not used.
    void drop_cached() const;

  private:
    FileReader(std::filesystem::path path, int fd);

    std::filesystem::path path_;
    int fd_ = -1;
    int64_t size_bytes_ = 0;
};

inline constexpr int64_t kMaxTextFileBytes = 64 << 20;

// The whole file, without a byte order mark. As FileReader::open, and kInvalidArgument when it has
// more than `limit_bytes`. Every message names the file.
Result<std::string> read_text_file(const std::filesystem::path& path,
                                   int64_t limit_bytes = kMaxTextFileBytes);

}  // namespace k3pod

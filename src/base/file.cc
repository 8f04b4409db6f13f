#include "k3pod/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "k3pod/base/text.h"

namespace k3pod {
namespace {

const char* kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    return "a special file";
}

}  // namespace

FileReader::FileReader(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
}

FileReader::~FileReader() {
    if (fd_ >= 0) ::close(fd_);
}

Result<FileReader> FileReader::open(const std::filesystem::path& path) {
    // O_NONBLOCK: a pipe of that name must not hold up the start. It changes nothing for a file.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return not_found(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
    }
    FileReader file(path, fd);
    struct stat info {};
    if (::fstat(fd, &info) != 0) {
        return data_loss(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
    }
    if (!S_ISREG(info.st_mode)) {
        return data_loss(
            fmt::format("{} is {}, expected a regular file", path.string(), kind_of(info.st_mode)));
    }
    file.size_bytes_ = info.st_size;
    return file;
}

Status FileReader::read(int64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t got = ::pread(fd_, out.data(), out.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return data_loss(fmt::format("cannot read {} bytes at byte {} of {}: {}", out.size(),
                                         offset, path_.string(), std::strerror(errno)));
        }
        if (got == 0) {
            return data_loss(fmt::format("{} ends at byte {}, it had {} bytes when it was opened",
                                         path_.string(), offset, size_bytes_));
        }
        out = out.subspan(static_cast<size_t>(got));
        offset += got;
    }
    return Status::ok();
}

Status FileReader::read_once(int64_t offset, std::span<std::byte> out) const {
    const Status status = read(offset, out);
    // Only whole pages are dropped. The last one is left to the read that goes on there.
    static const int64_t kPageBytes = ::sysconf(_SC_PAGESIZE);
    const int64_t begin = offset / kPageBytes * kPageBytes;
    const int64_t end = (offset + std::ssize(out)) / kPageBytes * kPageBytes;
    if (end > begin) (void)::posix_fadvise(fd_, begin, end - begin, POSIX_FADV_DONTNEED);
    return status;
}

void FileReader::drop_cached() const {
    (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
}

Result<std::string> read_text_file(const std::filesystem::path& path, int64_t limit_bytes) {
    K3POD_ASSIGN(const FileReader file, FileReader::open(path));
    if (file.size_bytes() > limit_bytes) {
        return invalid_argument(
            fmt::format("{} has {} bytes, the limit is {}: it is not the file "
                        "that belongs there",
                        path.string(), file.size_bytes(), limit_bytes));
    }
    std::string text(static_cast<size_t>(file.size_bytes()), '\0');
    K3POD_TRY(file.read(0, std::as_writable_bytes(std::span(text))));
    text.erase(0, text.size() - without_bom(text).size());
    return text;
}

}  // namespace k3pod

#include "k3pod/experts/shard_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "k3pod/base/file.h"
#include "k3pod/base/log.h"
#include "k3pod/weights/packed_shard.h"
#include "k3pod/wire/codec.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kMagic = 0x3143334bu;  // "K3C1" in memory order
constexpr const char* kSuffix = ".shard";

// In front of the packed bytes.
struct FileHead {
    uint32_t magic = kMagic;
    uint32_t zero = 0;
    uint64_t stamp = 0;
    uint64_t hash = 0;
    int64_t packed_bytes = 0;
    uint64_t unused[3] = {};
    uint64_t check = 0;  // XXH3-64 over the bytes before
};
static_assert(sizeof(FileHead) == 64);

uint64_t check_of(const FileHead& head) {
    return wire::hash64(std::as_bytes(std::span(&head, 1)).first(offsetof(FileHead, check)));
}

// A file that replaces `to` when it is complete, and is gone when it is not.
class NewFile {
  public:
    explicit NewFile(fs::path to) : to_(std::move(to)), path_(to_.string() + ".new") {
        fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    }
    ~NewFile() {
        if (fd_ < 0) return;
        ::close(fd_);
        if (!is_in_place_) ::unlink(path_.c_str());
    }
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    Status append(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return failure("write");
            bytes = bytes.subspan(static_cast<size_t>(written));
        }
        return Status::ok();
    }

    Status put_in_place() {
        // Only pages that are on the disk can be dropped from the page cache.
        if (::fdatasync(fd_) != 0) return failure("write");
        (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
        if (::rename(path_.c_str(), to_.c_str()) != 0) return failure("rename");
        is_in_place_ = true;
        return Status::ok();
    }

  private:
    Status failure(const char* what) const {
        return failed_precondition(
            fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno)));
    }

    const fs::path to_;
    const std::string path_;
    int fd_;
    bool is_in_place_ = false;
};

}  // namespace

Result<ShardCache> ShardCache::open(const fs::path& dir) {
    std::error_code error;
    fs::create_directories(dir, error);
    if (error || ::access(dir.c_str(), W_OK | X_OK) != 0) {
        return failed_precondition(
            fmt::format("shard_cache {}: cannot write there: {}; make the folder writable for "
                        "this user or leave the key out",
                        dir.string(), error ? error.message() : std::strerror(errno)));
    }
    return ShardCache(dir);
}

fs::path ShardCache::file_of(const Shard& shard) const {
    return dir_ / fmt::format("layer-{}-expert-{}-columns-{}-{}{}", shard.layer, shard.expert,
                              shard.begin, shard.end, kSuffix);
}

std::optional<ShardCache::Entry> ShardCache::find(const Shard& shard) const {
    const auto file = FileReader::open(file_of(shard));
    FileHead head;
    if (!file || !file->read(0, std::as_writable_bytes(std::span(&head, 1)))) return std::nullopt;
    const bool is_whole = head.magic == kMagic && head.check == check_of(head) &&
                          file->size_bytes() == head.packed_bytes + int64_t{sizeof(head)};
    if (is_whole) return Entry{head.stamp, head.hash, head.packed_bytes};
    log::warning(
        fmt::format("{} is damaged; the station sends this shard again", file->path().string()));
    return std::nullopt;
}

Status ShardCache::read(const Shard& shard, const Entry& entry, std::span<std::byte> out) const {
    K3POD_ASSIGN(const FileReader file, FileReader::open(file_of(shard)));
    K3POD_TRY(file.read_once(sizeof(FileHead), out));
    const uint64_t found = shard_hash(out);
    if (found == entry.hash) return Status::ok();
    return data_loss(fmt::format("{} has hash {:016x}, expected {:016x}", file.path().string(),
                                 found, entry.hash));
}

Status ShardCache::write(const Shard& shard, const Entry& entry,
                         std::span<const std::byte> packed) const {
    FileHead head{.stamp = entry.stamp, .hash = entry.hash, .packed_bytes = entry.packed_bytes};
    head.check = check_of(head);
    NewFile file(file_of(shard));
    K3POD_TRY(file.append(std::as_bytes(std::span(&head, 1))));
    K3POD_TRY(file.append(packed));
    return file.put_in_place();
}

void ShardCache::keep_only(std::span<const Shard> shards) const {
    std::set<fs::path> kept;
    for (const Shard& shard : shards) kept.insert(file_of(shard));
    std::error_code error;
    for (fs::directory_iterator it(dir_, error), end; !error && it != end; it.increment(error)) {
        const std::string name = it->path().filename().string();
        const bool is_ours = name.ends_with(kSuffix) || name.ends_with(".shard.new");
        std::error_code ignored;
        if (is_ours && !kept.contains(it->path())) fs::remove(it->path(), ignored);
    }
}

}  // namespace k3pod

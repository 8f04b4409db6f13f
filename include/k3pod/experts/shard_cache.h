#pragma once
// Shards that the station has streamed, on a node's own disk: one file each, so that the next start
// sends nothing. Nothing of a file is believed before it is checked.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/placement/placement.h"

namespace k3pod {

// One thread. File and page cache: what is read or written is dropped behind.
class ShardCache {
  public:
    // What a file says of its shard.
    struct Entry {
        uint64_t stamp = 0;  // shard_stamp() of the station when it was sent
        uint64_t hash = 0;   // shard_hash() of its bytes
        int64_t packed_bytes = 0;
    };

    // Creates the folder. kFailedPrecondition names it when files cannot be written there.
    static Result<ShardCache> open(const std::filesystem::path& dir);

    // Nothing when there is no file of this shard, or its head is damaged.
    std::optional<Entry> find(const Shard& shard) const;
    // Fills `out`, of entry.packed_bytes, and compares the hash; kDataLoss names the file, found
    // and expected.
    Status read(const Shard& shard, const Entry& entry, std::span<std::byte> out) const;
    // Replaces the shard's file as a whole.
    Status write(const Shard& shard, const Entry& entry, std::span<const std::byte> packed) const;
    // Removes the files of all other shards.
    void keep_only(std::span<const Shard> shards) const;

  private:
    explicit ShardCache(std::filesystem::path dir) : dir_(std::move(dir)) {}
    std::filesystem::path file_of(const Shard& shard) const;

    std::filesystem::path dir_;
};

}  // namespace k3pod

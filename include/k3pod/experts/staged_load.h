#pragma once
// A tier on its way from the station into this node's memory. It outlives broken links and
// sessions: what has arrived stays, and only what is missing is asked for.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/experts/shard_cache.h"
#include "k3pod/experts/tier_builder.h"
#include "k3pod/wire/stage.h"

namespace k3pod {

// One thread.
class StagedLoad {
  public:
    // stamps: shard_stamp() of each shard. Without a cache nothing is kept on the disk.
    StagedLoad(std::unique_ptr<TierBuilder> builder, std::vector<Shard> shards,
               std::vector<uint64_t> stamps, std::optional<ShardCache> cache);

    // Takes from the cache what has the right stamp and hash; `goes_on` is asked between shards.
    Status take_from_cache(const std::function<bool()>& goes_on);

    // What is missing, in the order of the list.
    std::vector<wire::StageAsk> missing() const;
    const std::vector<Shard>& shards() const { return shards_; }
    bool has(uint32_t shard) const { return entries_[shard].is_here; }
    bool is_complete() const { return num_here_ == shards_.size(); }

    // As TierBuilder::room().
    Result<std::span<std::byte>> room(uint32_t shard, int64_t packed_bytes);
    // The bytes in its room have this hash, as the station says; they go to the cache, too. A cache
    // that cannot be written any more is given up with a warning.
    Status finish(uint32_t shard, uint64_t hash);
    // The station has found that what the cache holds is still right.
    Status confirm(uint32_t shard);

    // When it is complete.
    Result<std::unique_ptr<ExpertTier>> build();

    int64_t num_from_cache() const { return num_from_cache_; }

  private:
    struct Entry {
        std::optional<ShardCache::Entry> known;  // in the cache, its hash found right
        std::span<std::byte> room{};
        bool is_here = false;
    };

    Status look_into_cache(uint32_t shard);
    Status load_from_cache(uint32_t shard, const ShardCache::Entry& entry);
    Status arrive(uint32_t shard);
    void store(uint32_t shard, const ShardCache::Entry& entry);

    std::unique_ptr<TierBuilder> builder_;
    std::vector<Shard> shards_;
    std::vector<uint64_t> stamps_;
    std::optional<ShardCache> cache_;
    bool is_cache_writable_ = true;
    std::vector<Entry> entries_;
    size_t num_here_ = 0;
    int64_t num_from_cache_ = 0;
};

}  // namespace k3pod

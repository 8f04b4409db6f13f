#include "k3pod/experts/staged_load.h"

#include <utility>

#include "k3pod/base/check.h"
#include "k3pod/base/log.h"

namespace k3pod {

StagedLoad::StagedLoad(std::unique_ptr<TierBuilder> builder, std::vector<Shard> shards,
                       std::vector<uint64_t> stamps, std::optional<ShardCache> cache)
    : builder_(std::move(builder)),
      shards_(std::move(shards)),
      stamps_(std::move(stamps)),
      cache_(std::move(cache)),
      entries_(shards_.size()) {
    K3POD_CHECK(stamps_.size() == shards_.size(), "every shard has a stamp");
}

Status StagedLoad::take_from_cache(const std::function<bool()>& goes_on) {
    if (!cache_) return Status::ok();
    cache_->keep_only(shards_);
    for (uint32_t shard = 0; shard < shards_.size() && goes_on(); ++shard) {
        if (!entries_[shard].is_here) K3POD_TRY(look_into_cache(shard));
    }
    return Status::ok();
}

Status StagedLoad::look_into_cache(uint32_t shard) {
    const std::optional<ShardCache::Entry> found = cache_->find(shards_[shard]);
    if (!found) return Status::ok();
    if (found->stamp == stamps_[shard]) return load_from_cache(shard, *found);
    // The checkpoint's file was touched, which need not have changed this shard: the station says.
    HostBuffer bytes(found->packed_bytes);
    const Status read = cache_->read(shards_[shard], *found,
                                     {bytes.data(), static_cast<size_t>(bytes.size_bytes())});
    if (read) {
        entries_[shard].known = found;
    } else {
        log::warning(read.message() + "; the station sends this shard again");
    }
    return Status::ok();
}

// A damaged file is only as bad as none.
Status StagedLoad::load_from_cache(uint32_t shard, const ShardCache::Entry& entry) {
    K3POD_ASSIGN(const std::span<std::byte> room, this->room(shard, entry.packed_bytes));
    const Status read = cache_->read(shards_[shard], entry, room);
    if (!read) {
        log::warning(read.message() + "; the station sends this shard again");
        return Status::ok();
    }
    ++num_from_cache_;
    return arrive(shard);
}

std::vector<wire::StageAsk> StagedLoad::missing() const {
    std::vector<wire::StageAsk> asks;
    for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
        const Entry& entry = entries_[shard];
        if (entry.is_here) continue;
        asks.push_back({.shard = shard, .known_hash = entry.known ? entry.known->hash : 0});
    }
    return asks;
}

Result<std::span<std::byte>> StagedLoad::room(uint32_t shard, int64_t packed_bytes) {
    K3POD_ASSIGN(entries_[shard].room, builder_->room(shard, packed_bytes));
    return entries_[shard].room;
}

Status StagedLoad::finish(uint32_t shard, uint64_t hash) {
    if (entries_[shard].is_here) return Status::ok();
    store(shard, {stamps_[shard], hash, std::ssize(entries_[shard].room)});
    return arrive(shard);
}

Status StagedLoad::confirm(uint32_t shard) {
    Entry& entry = entries_[shard];
    if (entry.is_here) return Status::ok();
    if (!entry.known) {
        return data_loss("the station keeps back a shard that this node does not have");
    }
    K3POD_ASSIGN(const std::span<std::byte> room, this->room(shard, entry.known->packed_bytes));
    K3POD_TRY(cache_->read(shards_[shard], *entry.known, room));
    store(shard, {stamps_[shard], entry.known->hash, entry.known->packed_bytes});
    ++num_from_cache_;
    return arrive(shard);
}

Status StagedLoad::arrive(uint32_t shard) {
    K3POD_TRY(builder_->finish(shard));
    entries_[shard].is_here = true;
    ++num_here_;
    return Status::ok();
}

void StagedLoad::store(uint32_t shard, const ShardCache::Entry& entry) {
    if (!cache_ || !is_cache_writable_) return;
    const Status written = cache_->write(shards_[shard], entry, entries_[shard].room);
    if (written) return;
    log::warning(written.message() + "; going on without the shard cache");
    is_cache_writable_ = false;
}

Result<std::unique_ptr<ExpertTier>> StagedLoad::build() {
    return builder_->build();
}

}  // namespace k3pod

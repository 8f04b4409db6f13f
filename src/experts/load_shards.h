#pragma once
// From a list of shards to their weights in a tier's memory, read from this node's own checkpoint.

#include <functional>
#include <span>
#include <string>
#include <utility>

#include "k3pod/placement/placement.h"
#include "k3pod/weights/model_weights.h"
#include "k3pod/weights/packed_shard.h"

namespace k3pod {

// "shard of layer 3 expert 7 columns [0, 96)"
std::string describe(const Shard& shard);

// Inside the model, columns on block boundaries, none twice. Errors name the shard.
Status check_shards(const ModelConfig& config, std::span<const Shard> shards);

// File and byte where the shard's expert starts; both releases' names are tried.
std::pair<int32_t, int64_t> place_in_files(const Checkpoint& checkpoint, const Shard& shard);

// Takes the weights of shards[index]; an error of it ends the load.
using PutShard = std::function<Status(size_t index, const HeldShard& weights)>;

// Reads the shards, which check_shards() has accepted, in file order. Errors name the shard.
// `progress` may be null.
Status load_shards(const Checkpoint& checkpoint, const ModelConfig& config, Release release,
                   std::span<const Shard> shards, const LoadProgress& progress,
                   const PutShard& put);

// The same into the memory of a tier.
template <class Builder>
Status load_shards(const Checkpoint& checkpoint, const ModelConfig& config, Release release,
                   std::span<const Shard> shards, const LoadProgress& progress, Builder& builder) {
    return load_shards(
        checkpoint, config, release, shards, progress,
        PutShard([&](size_t index, const HeldShard& weights) -> Status {
            const int64_t bytes =
                packed_shard_bytes(weights.format(), weights.w1.cols, weights.w1.rows);
            K3POD_ASSIGN(const std::span<std::byte> room, builder.room(index, bytes));
            pack_shard(weights, room);
            return builder.finish(index);
        }));
}

}  // namespace k3pod

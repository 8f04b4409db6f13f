#pragma once
// From a list of shards to their weights, one after the other.

#include <functional>
#include <span>

#include "k3pod/placement/placement.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod {

// Takes one shard's weights; an error of it ends the load.
using TakeShard = std::function<Status(const Shard& shard, ExpertShardWeights weights)>;

// Checks the list (inside the model, columns on block boundaries, none twice), then reads the
// shards in file order; slices of one expert come in the order of their columns. Errors name the
// shard. `progress` may be null.
Status load_shards(const Checkpoint& checkpoint, const ModelConfig& config, Release release,
                   std::span<const Shard> shards, const LoadProgress& progress,
                   const TakeShard& take);

}  // namespace k3pod

#pragma once
// The memory of a tier while it is filled, by whoever brings the shards: from this node's own
// checkpoint, from the station, from the shard cache.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/experts/expert_tier.h"
#include "k3pod/weights/packed_shard.h"

namespace k3pod {

// One thread. A shard is named by its index in the list that create() was given.
class TierBuilder {
  public:
    virtual ~TierBuilder() = default;

    // Allocates the store once, for the most bytes that the shards of this release take; memory is
    // touched as it is filled. The list is checked: inside the model, columns on block boundaries,
    // none twice. max_rows bounds the rows of a frame. Errors of the back end as
    // ExpertTier::load().
    static Result<std::unique_ptr<TierBuilder>> create(Backend backend, const ModelConfig& config,
                                                       Release release,
                                                       std::span<const Shard> shards,
                                                       int32_t max_rows);

    // Where the packed bytes of a shard are to be written, on a 64-byte boundary. The same place
    // when it is asked for again with the same size. kResourceExhausted when the store is full: the
    // shard has another size than its release allows.
    virtual Result<std::span<std::byte>> room(size_t shard, int64_t packed_bytes) = 0;
    // They are written and checked. kDataLoss when they are not those of this shard. Its room must
    // not be written again.
    virtual Status finish(size_t shard) = 0;
    // When every shard is finished; the builder is empty afterwards.
    virtual Result<std::unique_ptr<ExpertTier>> build() = 0;
};

}  // namespace k3pod

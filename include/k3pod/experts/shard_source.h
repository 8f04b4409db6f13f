#pragma once
// Where the station takes the shards that it streams to expert servers.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/placement/placement.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/model_weights.h"
#include "k3pod/weights/packed_shard.h"

namespace k3pod {

struct PackedShard {
    HostBuffer bytes;
    std::vector<uint64_t> chunk_hashes;
    uint64_t hash = 0;  // shard_hash() of them

    std::span<const std::byte> view() const {
        return {bytes.data(), static_cast<size_t>(bytes.size_bytes())};
    }
};

// Computes the hashes of bytes that are filled in.
void seal_packed_shard(PackedShard& shard);

// Any thread.
class ShardSource {
  public:
    virtual ~ShardSource() = default;
    // Experts in rising order of this number lie behind one another: reading them so is sequential.
    virtual uint64_t place_of(int32_t layer, int32_t expert) const = 0;
    // The most bytes that read() gives for a shard.
    virtual int64_t most_bytes(const Shard& shard) const = 0;
    // Slices of one expert, packed. Its bytes are read once, whatever the number of slices. Errors
    // name the expert and the tensor.
    virtual Result<std::vector<std::shared_ptr<const PackedShard>>> read(
        std::span<const Shard> slices) const = 0;
};

// From a checkpoint that is borrowed, repacked to MXFP4 where that changes no value. Uses memory
// for about three times the expert while it reads one.
std::unique_ptr<ShardSource> make_checkpoint_source(const Checkpoint& checkpoint,
                                                    const ModelConfig& config, Release release);

// A number for what a shard of this checkpoint holds: another one when the expert's file was
// changed (size or time of change), or the model (fingerprint). Shards with equal stamps have equal
// bytes.
uint64_t shard_stamp(const Checkpoint& checkpoint, uint64_t model_fingerprint, const Shard& shard);

}  // namespace k3pod

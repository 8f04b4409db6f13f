#pragma once
// An expert shard as one run of bytes: how it lies in an expert server's memory, travels from the
// station, and is kept on a node's disk. A head of 64 bytes, then data and scales of w1, w3 and w2,
// each on a 64-byte boundary. docs/staging.md has the table.

#include <cstddef>
#include <cstdint>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/device/matrix.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod {

inline constexpr int64_t kPackedAlignment = 64;
inline constexpr uint32_t kPackedMagic = 0x3153334bu;  // "K3S1" in memory order

struct PackedHead {
    uint32_t magic = kPackedMagic;
    WeightFormat format = WeightFormat::kMxfp4;  // kMxfp4 or kNvfp4
    uint8_t unused[3] = {};
    int32_t width = 0;   // columns of the expert's width
    int32_t latent = 0;  // L
    int64_t size_bytes = 0;
    float w1_scale = 1, w3_scale = 1, w2_scale = 1;  // global scales, of kNvfp4
    uint8_t zero[28] = {};
};
static_assert(sizeof(PackedHead) == kPackedAlignment);

// The matrices of a shard, wherever they lie.
struct HeldShard {
    MatrixView w1, w3;  // [width, L]
    MatrixView w2;      // [L, width]
    WeightFormat format() const { return w1.format; }
    // Data and scales; neither head nor padding.
    int64_t size_bytes() const;
};

HeldShard held_shard(const ExpertShardWeights& weights);

// With head and padding. `format` is kMxfp4 or kNvfp4.
int64_t packed_shard_bytes(WeightFormat format, int32_t latent, int32_t width);
// The most that a shard of a release takes packed, without reading it.
int64_t most_packed_shard_bytes(const ModelConfig& config, Release release, int32_t width);

// `out` has packed_shard_bytes() bytes.
void pack_shard(const HeldShard& shard, std::span<std::byte> out);

// Views into `bytes`, which lie on a 64-byte boundary. kDataLoss when the head is not that of a
// shard of this width and latent size, found and expected.
Result<HeldShard> open_packed_shard(std::span<const std::byte> bytes, int32_t latent,
                                    int32_t width);

// Packed bytes travel in chunks, each checked by itself.
inline constexpr int64_t kShardChunkBytes = 60 << 10;

constexpr int64_t num_shard_chunks(int64_t packed_bytes) {
    return (packed_bytes + kShardChunkBytes - 1) / kShardChunkBytes;
}
// XXH3-64 of one chunk.
uint64_t chunk_hash(std::span<const std::byte> chunk);
// Of a shard: XXH3-64 over the hashes of its chunks in order, so that who has checked every chunk
// need not walk through the bytes again.
uint64_t shard_hash(std::span<const uint64_t> chunk_hashes);
uint64_t shard_hash(std::span<const std::byte> packed);

}  // namespace k3pod

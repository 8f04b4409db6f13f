#pragma once
// Sizes of the kernel of mla_wide.cu, its shared memory, and how the results of its splits lie.

#include "common/block.cuh"
#include "common/vectors.cuh"
#include "generic/mla.cuh"
#include "sm90/mla_wide.h"
#include "sm90/wgmma.cuh"

namespace k3pod::kernels {

inline constexpr int kGroups = 2;
inline constexpr int kGroupWarps = 4;
inline constexpr int kGroupThreads = kGroupWarps * kWarpSize;
inline constexpr int kThreads = (kGroups + 1) * kGroupThreads;
inline constexpr int kGroupHeads = 48;
inline constexpr int kHeads = kGroups * kGroupHeads;
static_assert(kHeads == kWideMlaHeads);
inline constexpr int kTokens = kWideMlaTokens;
inline constexpr int kRank = 512;
inline constexpr int kWidth = 576;
inline constexpr int kLatentBoxes = kRank / kOperandCols;
inline constexpr int kBoxes = kWidth / kOperandCols;  // of a tile; the first is the rope part
inline constexpr int kSlots = 13;
inline constexpr int kTilesAhead = 3;                  // of the tile that is copied, in the L2
inline constexpr int kDepthSteps = kOperandCols / 16;  // products of a box of scores
inline constexpr int kTokenSteps = kTokens / 16;       // and of a box of output
inline constexpr int kCopierRegisters = 24;
inline constexpr int kGroupRegisters = 240;
// Scores are made for half the group's heads at a time: all would take too many registers.
inline constexpr int kScoreParts = 2;
inline constexpr int kScoreHeads = kGroupHeads / kScoreParts;
inline constexpr int kScoreFloats = kScoreHeads / 2;  // of a thread
inline constexpr float kRaiseAbove = 60;              // in powers of two
inline constexpr float kLog2e = 1.4426950408889634f;

struct Work {
    int chunk;
    int64_t first_query;  // among all R * heads
    int visible;          // positions that the token sees
    int begin_tile, end_tile;
};

struct Shared {
    Bf16 q[kBoxes][kHeads][kOperandCols];
    Bf16 ring[kSlots][kTokens][kOperandCols];
    Bf16 p[kGroups][kGroupHeads][kTokens];
    float of_warps[kGroups][kGroupWarps][kGroupHeads];
    float reference[kGroups][kGroupHeads];
    Work work;
    uint64_t full[kSlots];
    uint64_t empty[kSlots];
};

// Results of the splits. Outputs lie as the threads hold them: for split, token and group, four
// floats of every thread, 48 times.
struct Partials {
    SplitStats* stats;  // [splits, R * heads]
    float* out;         // [splits, R * heads * rank], not divided by the sum
    int64_t queries;    // R * heads
};
inline constexpr int kQuads = kRank * kGroupHeads / kGroupThreads / 4;  // of floats a thread holds
inline constexpr int kQuadsPerBox = kQuads / kLatentBoxes;
inline constexpr int64_t kGroupFloats = int64_t{kRank} * kGroupHeads;

__device__ inline float* partial_of(const Partials& partials, int split, int64_t first_query,
                                    int group) {
    return partials.out + (split * partials.queries + first_query) * kRank + group * kGroupFloats;
}

// Adds what the splits have left to latent_out.
Status wide_mla_merge(const MlaAttendArgs& args, const Partials& partials, CudaStream stream);

// The boxes of a block's tiles go round in the ring.
__device__ inline int slot_of(int box) {
    return box % kSlots;
}
__device__ inline uint32_t round_of(int box) {
    return static_cast<uint32_t>(box) / kSlots % 2;
}

}  // namespace k3pod::kernels

#pragma once
// How a launch of common/stream.cuh shares rows of weights out among blocks, warps and lanes.

#include <cstdint>

#include "k3pod/device/matrix.h"

namespace k3pod::kernels {

inline constexpr int kTileRows = 16;
// Of a row: two pieces of 16 bytes for each lane of a quad, 64 bytes apart. As long as a tile of
// FP8 scales is wide.
inline constexpr int kStepBytes = 128;
inline constexpr int kStepHalves = 2;
// Of a block; half as many where a multiprocessor's shared memory has no room for their rings.
inline constexpr int kMaxStreamWarps = 16;
inline constexpr int kMaxStreamThreads = kMaxStreamWarps * 32;
constexpr int32_t stream_warps(int64_t shared_bytes) {
    return shared_bytes >= int64_t{160} * 1024 ? kMaxStreamWarps : kMaxStreamWarps / 2;
}
// Steps of each warp in shared memory, all but one of them under way: 64 KiB of a multiprocessor's
// 16 warps where room is short, twice what Little's law asks for at 4.5 TB/s and a microsecond.
inline constexpr int kFewStages = 3;
inline constexpr int kManyStages = 5;
inline constexpr int kMaxStreamCluster = 8;

struct StreamShape {
    int32_t row_bytes = 0;    // of weights, a multiple of 16
    int32_t cluster = 1;      // blocks that share the columns of a tile
    int32_t warps = 1;        // of a block, a power of two
    int32_t group_warps = 1;  // of them that share a tile's columns, a power of two

    constexpr int32_t num_groups() const { return warps / group_warps; }
    constexpr int32_t num_steps() const { return (row_bytes + kStepBytes - 1) / kStepBytes; }
    constexpr int32_t block_steps() const { return (num_steps() + cluster - 1) / cluster; }
};

// Units of eight values in 16 bytes of a row.
constexpr int32_t units_per_16_bytes(WeightFormat format) {
    switch (format) {
        case WeightFormat::kF32:
        case WeightFormat::kBf16:
            return 1;
        case WeightFormat::kFp8Tile:
            return 2;
        case WeightFormat::kNvfp4:
        case WeightFormat::kMxfp4:
            return 4;
    }
    return 0;
}

// Bytes of a ring's stage: two rows' 2 x 16 bytes for each lane, and what the formats of
// common/stream_formats.cuh put behind them.
inline constexpr int32_t kStageData = 2048;
constexpr int32_t stage_bytes(WeightFormat format) {
    switch (format) {
        case WeightFormat::kF32:
        case WeightFormat::kBf16:
            return kStageData;
        case WeightFormat::kFp8Tile:
            return kStageData + 16;
        case WeightFormat::kNvfp4:
        case WeightFormat::kMxfp4:
            return kStageData + 512;
    }
    return 0;
}

constexpr int32_t ring_bytes(WeightFormat format, int32_t warps, int32_t stages) {
    return warps * stages * stage_bytes(format);
}

// Sums of a tile for each group, of this round and of the one before. values: of a lane.
constexpr int32_t sums_bytes(int32_t values, int32_t warps) {
    return 2 * warps * 32 * values * 4;
}

// Bytes of one column of the operand for num_steps steps: 64 beyond a multiple of 128, so that
// columns g and g + 1 lie in different banks.
constexpr int32_t operand_column_bytes(int32_t units_per_16_bytes, int32_t num_steps) {
    return num_steps * kStepHalves * units_per_16_bytes * 64 + 64;
}

}  // namespace k3pod::kernels

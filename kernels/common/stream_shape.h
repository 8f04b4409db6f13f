#pragma once
// How a launch of common/stream.cuh cuts rows into chunks and shared memory into stages.

#include <cstdint>

#include "k3pod/device/matrix.h"

namespace k3pod::kernels {

inline constexpr int kTileRows = 16;
inline constexpr int kConsumerWarps = 16;
inline constexpr int kProducerWarps = 4;
inline constexpr int kStepBytes = 64;  // of a row, for the four lanes of a quad
inline constexpr int kMaxStages = 16;
inline constexpr int kMaxChunkBytes = 2048;
inline constexpr int kRowPadBytes = 64;  // rows g and g + 1 then lie in different banks
inline constexpr int kStreamMemoryBytes = 2 * kMaxStages * 8 + kConsumerWarps * 128 * 4;

struct StreamShape {
    int32_t row_bytes = 0;  // of weights, a multiple of 16
    int32_t num_chunks = 0;
    int32_t chunk_bytes = 0;  // a multiple of 128; the last chunk of a row may be shorter
    int32_t num_stages = 0;
    int32_t stage_bytes = 0;
    int32_t num_groups = 0;     // of consumers: 1, 2, 4 or 8, at most num_stages
    int32_t operand_bytes = 0;  // of the part of the operand that stays

    // From row to row in a stage. Rows that are not cut lie as in memory and come in few copies.
    constexpr int32_t stage_stride() const {
        return num_chunks == 1 ? row_bytes : chunk_bytes + kRowPadBytes;
    }
    constexpr int32_t warps_per_group() const { return kConsumerWarps / num_groups; }
    constexpr int32_t group_warps_log2() const {
        return num_groups == 1 ? 4 : num_groups == 2 ? 3 : num_groups == 4 ? 2 : 1;
    }
    constexpr int32_t chunk_size(int32_t chunk) const {
        const int32_t rest = row_bytes - chunk * chunk_bytes;
        return rest < chunk_bytes ? rest : chunk_bytes;
    }
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

// Bytes of one column of the operand for row_bytes of weights: 64 beyond a multiple of 128, so that
// columns g and g + 1 lie in different banks.
constexpr int32_t operand_column_bytes(int32_t units_per_16_bytes, int32_t row_bytes) {
    const int32_t steps = (row_bytes + kStepBytes - 1) / kStepBytes;
    return (steps * units_per_16_bytes * 64 + 127) / 128 * 128 + 64;
}

}  // namespace k3pod::kernels

#pragma once
// Activations in and outputs out of a streamed product.

#include <cuda_bf16.h>

#include "common/mma.cuh"
#include "common/vectors.cuh"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {

__device__ inline float load_x(const DeviceRows& x, int32_t token, int32_t col) {
    const int64_t at = token * x.stride + col;
    return x.f32 != nullptr ? x.f32[at] : widen(x.bf16[at]);
}

// Of token `token`, from `col` on; zeros beyond the last column.
__device__ inline void load_unit(const DeviceRows& x, int32_t cols, int32_t token, int32_t col,
                                 float (&values)[8]) {
    const int64_t at = token * x.stride + col;
    if (x.f32 != nullptr && col + 8 <= cols && reinterpret_cast<uintptr_t>(x.f32 + at) % 16 == 0) {
        const auto first = load<4>(x.f32 + at), second = load<4>(x.f32 + at + 4);
#pragma unroll
        for (int k = 0; k < 4; ++k) values[k] = first.at[k], values[k + 4] = second.at[k];
        return;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) values[k] = col + k < cols ? load_x(x, token, col + k) : 0.0f;
}

// Eight neighbouring values of a token as a unit of the operand's two parts.
struct SplitUnit {
    uint4 high, low;
};

// F::kPairsHalves: the order of a unit is 0, 4, 1, 5, 2, 6, 3, 7.
template <class F>
__device__ SplitUnit split_unit(const float (&values)[8], float scale) {
    alignas(16) uint16_t high[8], low[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const float value = values[F::kPairsHalves ? k / 2 + k % 2 * 4 : k];
        if constexpr (F::kIsF16) {
            const SplitF16 parts = split_f16(value * scale);
            high[k] = __half_as_ushort(parts.high), low[k] = __half_as_ushort(parts.low);
        } else {
            const SplitBf16 parts = split_bf16(value);
            high[k] = __bfloat16_as_ushort(parts.high), low[k] = __bfloat16_as_ushort(parts.low);
        }
    }
    return {*reinterpret_cast<const uint4*>(high), *reinterpret_cast<const uint4*>(low)};
}

// The power of two that brings values up to `largest` into [2^14, 2^15), where f16 is finest.
__device__ inline float f16_scale(float largest) {
    const int exponent = static_cast<int>(__float_as_uint(largest) >> 23);
    return __uint_as_float(static_cast<uint32_t>(min(max(268 - exponent, 1), 253)) << 23);
}

__device__ inline void write_output(const GemmBand& band, int32_t token, int32_t row, float value) {
    const int64_t at = token * band.y.stride + row;
    if (band.adds) value += band.y.f32[at];
    if (band.y.f32 != nullptr) band.y.f32[at] = value;
    if (band.y.bf16 != nullptr) band.y.bf16[at] = round_to_bf16(value);
}

// One of the 16 rows of a tile. A tile of a gated product has eight rows of each matrix, so that a
// lane ends up with gate and up of the same output; any other has 16 rows of one band.
template <bool kIsGated>
struct TileRow {
    const GemmBand* band;
    int32_t row;
    __device__ TileRow(const TiledBands& bands, int32_t tile, int32_t row_of_tile) {
        if constexpr (kIsGated) {
            band = &bands.bands[row_of_tile / 8];
            row = tile * 8 + row_of_tile % 8;
        } else {
            int i = bands.num_bands - 1;
            while (tile < bands.first_tile[i]) --i;
            band = &bands.bands[i];
            row = (tile - bands.first_tile[i]) * 16 + row_of_tile;
        }
    }
    __device__ const MatrixView& weight() const { return band->weight; }
    __device__ bool exists() const { return row < weight().rows; }
    // Of this row, or of one that exists.
    template <class F>
    __device__ const std::byte* scale_row(int lane_of_quad) const {
        return F::scale_row(weight(), min(row, weight().rows - 1), lane_of_quad);
    }
};

}  // namespace k3pod::kernels

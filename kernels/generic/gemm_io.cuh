#pragma once
// Activations in and outputs out, for all ways through gemm().

#include <cuda_bf16.h>

#include "common/mma.cuh"
#include "common/vectors.cuh"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {

__device__ inline float load_x(const DeviceRows& x, int32_t token, int32_t col) {
    const int64_t at = token * x.stride + col;
    return x.f32 != nullptr ? x.f32[at] : widen(x.bf16[at]);
}

// Eight neighbouring values of a token as a unit of the operand's two parts.
struct SplitUnit {
    uint4 high, low;
};

// Zeros beyond the last column and the last token. kPairsHalves: as the weight format F has it.
template <class F>
__device__ SplitUnit load_split_unit(const DeviceRows& x, int32_t tokens, int32_t cols,
                                     int32_t token, int32_t unit) {
    alignas(16) __nv_bfloat16 high[8], low[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int32_t col = unit * 8 + (F::kPairsHalves ? k / 2 + k % 2 * 4 : k);
        const bool is_there = col < cols && token < tokens;
        const SplitBf16 value = split_bf16(is_there ? load_x(x, token, col) : 0.0f);
        high[k] = value.high;
        low[k] = value.low;
    }
    return {*reinterpret_cast<const uint4*>(high), *reinterpret_cast<const uint4*>(low)};
}

__device__ inline void write_output(const GemmBand& band, int32_t token, int32_t row, float value) {
    const int64_t at = token * band.y.stride + row;
    if (band.adds) value += band.y.f32[at];
    if (band.y.f32 != nullptr) band.y.f32[at] = value;
    if (band.y.bf16 != nullptr) band.y.bf16[at] = round_to_bf16(value);
}

// Tiles are dealt out in contiguous, equal parts.
struct TileRange {
    int32_t begin, count;
    __device__ explicit TileRange(int32_t num_tiles)
        : begin(first_of(blockIdx.x, num_tiles)),
          count(first_of(blockIdx.x + 1, num_tiles) - begin) {}
    static __device__ int32_t first_of(unsigned block, int32_t num_tiles) {
        return static_cast<int32_t>(int64_t{num_tiles} * block / gridDim.x);
    }
};

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
    __device__ typename F::ScaleRow scale_row(int lane_of_quad) const {
        return F::scale_row(weight(), min(row, weight().rows - 1), lane_of_quad);
    }
};

}  // namespace k3pod::kernels

#pragma once
// Outputs of a product, and the rows of weights that they belong to.

#include <cuda_bf16.h>

#include "common/vectors.cuh"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {

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

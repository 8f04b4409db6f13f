#pragma once
// The ways through gemm() and gated_gemm(). Each takes arguments that the launcher has checked.

#include "k3pod/base/status.h"
#include "k3pod/kernels/gemm.h"

namespace k3pod::kernels {

// One launch in the form that all ways take: the bands of a gemm, or gate and up of a gated one.
struct GemmCall {
    int32_t tokens = 0;
    DeviceRows x;
    GemmBand bands[kMaxGemmBands];
    int32_t num_bands = 0;
    bool is_gated = false;  // bands[0] is gate with y of the product, bands[1] is up
    float beta = 0;
    float linear_beta = 0;
    std::byte* workspace = nullptr;

    const MatrixView& weight() const { return bands[0].weight; }
};

// The bands of a launch cut into tiles of 16 rows, and the tiles that they begin at. A tile of a
// gated product has eight rows of each of the two.
struct TiledBands {
    int32_t num_bands = 0;
    int32_t num_tiles = 0;
    GemmBand bands[kMaxGemmBands];
    int32_t first_tile[kMaxGemmBands] = {};
};

TiledBands tile_bands(const GemmCall& call);

// Bytes of one row of a weight.
int64_t row_bytes_of(const MatrixView& weight);
// Whether all rows of all bands are whole, aligned pieces of 16 bytes, of a format that the tensor
// cores take.
bool are_rows_pieces(const GemmCall& call);

// How many tokens stream_gemm() takes at a time for these weights; 0: none.
Result<int32_t> max_stream_tokens(const GemmCall& call);
// Every weight byte once.
Status stream_gemm(const GemmCall& call, CudaStream stream);

// Weights and activations rounded to bf16, through cuBLASLt: many tokens, large matrices. False too
// where the library is not there. For the bands of one call, all of them or none if it is gated.
bool can_multiply_large(const GemmBand& band, int32_t tokens);
Status large_gemm(const GemmCall& call, CudaStream stream);
// 0: the way is not open.
int64_t large_gemm_workspace_bytes(const MatrixView& weight, bool is_gated, int32_t tokens);

// Any shape and format, one value at a time.
Status plain_gemm(const GemmCall& call, CudaStream stream);

}  // namespace k3pod::kernels

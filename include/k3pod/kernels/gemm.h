#pragma once
// Products of rows of activations with the station's weights. CPU twin: ops/linear.h.
//
//   y[T, rows] = x[T, cols] W^T, fp32 sums, for every WeightFormat
//
// Up to kMaxStreamedTokens rows a launch reads every weight byte once, most shapes at nine tenths
// of the memory's rate for one row. More rows go through in slices of as many, and read the weights
// again; from 96 rows on, where a matrix is large and cuBLASLt can be loaded, through that library.
//
// Precision of a streamed product: weights are exact, fp32 activations are split into two 16-bit
// parts (relative error of a value up to 2^-17), sums are fp32. cuBLASLt gets weights and
// activations rounded to bf16. An output is summed in an order that depends on the shapes and T
// alone: the same bits for every replay and every place in the batch.
//
// All pointers are in device memory. Pointers aligned to 16 bytes and columns that fill whole
// 16-byte pieces of a row take the fast path; anything else is right and slow.

#include <cstddef>
#include <cstdint>
#include <span>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/matrix.h"

namespace k3pod::kernels {

inline constexpr int32_t kMaxStreamedTokens = 16;
inline constexpr int32_t kMaxGemmBands = 8;

// Rows of fp32 or bf16 values inside wider rows: row t starts at t * stride values.
struct DeviceRows {
    // Exactly one of the two.
    const float* f32 = nullptr;
    const Bf16* bf16 = nullptr;
    int64_t stride = 0;
};
struct DeviceRowsOut {
    // At least one of the two; bf16 is rounded to nearest even.
    float* f32 = nullptr;
    Bf16* bf16 = nullptr;
    int64_t stride = 0;  // of both
};

// One matrix of a launch.
struct GemmBand {
    MatrixView weight;
    DeviceRowsOut y;    // [T, weight.rows]
    bool adds = false;  // y.f32 += x W^T instead of =; y.bf16 then rounds the sum
};

// Several matrices that share x are one launch: q, k, v, g, f_a and b of a KDA layer, the router
// and the latent projection of a MoE layer.
struct GemmArgs {
    int32_t tokens = 0;               // T; 0 does nothing
    DeviceRows x;                     // [T, cols]
    std::span<const GemmBand> bands;  // host memory; 1 to kMaxGemmBands, of one format and cols
    std::byte* workspace = nullptr;   // gemm_workspace_bytes(), aligned to 256
};
Status gemm(const GemmArgs& args, CudaStream stream);

// y = [beta * tanh(g / beta) * sigmoid(g)] * [linear_beta * tanh(u / linear_beta)] with
// g = x gate^T and u = x up^T.
struct GatedGemmArgs {
    int32_t tokens = 0;
    DeviceRows x;         // [T, cols]
    MatrixView gate, up;  // [width, cols], of one format
    float beta = 0;
    float linear_beta = 0;
    DeviceRowsOut y;                 // [T, width]
    std::byte* workspace = nullptr;  // gated_gemm_workspace_bytes(), aligned to 256
};
Status gated_gemm(const GatedGemmArgs& args, CudaStream stream);

// Bytes of workspace for calls with up to max_tokens rows; 0 where none is used (workspace may then
// be null). Launches that share one workspace must not run at the same time.
int64_t gemm_workspace_bytes(std::span<const GemmBand> bands, int32_t max_tokens);
int64_t gated_gemm_workspace_bytes(const MatrixView& gate, int32_t max_tokens);

}  // namespace k3pod::kernels

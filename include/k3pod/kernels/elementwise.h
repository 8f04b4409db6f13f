#pragma once
// Element-wise kernels, the embedding and the sum over holders. All pointers are in device memory.

#include <cstdint>
#include <span>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/matrix.h"

namespace k3pod::kernels {

// y = [beta * tanh(gate / beta) * sigmoid(gate)] * [linear_beta * tanh(up / linear_beta)].
struct SituArgs {
    int32_t rows = 0;
    int32_t width = 0;
    float beta = 0;
    float linear_beta = 0;
    // [rows, width], input_stride floats from row to row; 0: width. So gate and up may be the two
    // halves of one product.
    const float* gate = nullptr;
    const float* up = nullptr;
    int64_t input_stride = 0;
    // At least one of the two, both [rows, width].
    float* y = nullptr;  // may be gate or up when input_stride is 0 or width
    Bf16* y_bf16 = nullptr;
};
Status situ(const SituArgs& args, CudaStream stream);

Status add(const float* x, float* y, int64_t count, CudaStream stream);      // y += x
Status sigmoid(const float* x, float* y, int64_t count, CudaStream stream);  // y may be x
Status silu(const float* x, float* y, int64_t count, CudaStream stream);     // y may be x
Status to_bf16(const float* x, Bf16* y, int64_t count, CudaStream stream);   // nearest even
Status to_f32(const Bf16* x, float* y, int64_t count, CudaStream stream);

// out[rows, H] = row ids[r] of table[V, H], kF32 or kBf16, widened to fp32. An id outside [0, V)
// gives a row of zeros: ids come from the host, which has checked them, or from sample(), which
// marks a failed draw so.
struct EmbedArgs {
    MatrixView table;
    int32_t rows = 0;
    const int32_t* ids = nullptr;  // [rows]
    float* out = nullptr;          // [rows, H]
};
Status embed(const EmbedArgs& args, CudaStream stream);

inline constexpr int32_t kMaxCombineParts = 16;

// One holder's partial expert output.
struct CombinePart {
    // Exactly one of the two: [n, L].
    const float* f32 = nullptr;
    const Bf16* bf16 = nullptr;
    // Row of out that each of the n rows adds to, none twice; null: rows in order, n = rows.
    const uint16_t* rows = nullptr;     // [n]
    const int32_t* num_rows = nullptr;  // n, read when the kernel runs; with `rows` only
};

// out[rows, L] = sum of the parts, fp32, in the order given; then, with norm_weight, its RMSNorm.
// Rows that no part names are zero.
struct CombineArgs {
    int32_t rows = 0;
    int32_t latent = 0;                  // L
    std::span<const CombinePart> parts;  // host memory, at most kMaxCombineParts
    const float* norm_weight = nullptr;  // [L] or null
    float norm_eps = 0;
    float* out = nullptr;  // [rows, L], overwritten
};
Status combine(const CombineArgs& args, CudaStream stream);

}  // namespace k3pod::kernels

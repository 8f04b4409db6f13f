#pragma once
// Gated MLA in the absorbed form over the paged latent cache. Per layer, after q_a, kv_a and g:
//   mla_write_latents; q = q_b(RMSNorm(q_a x)) -> mla_absorb_query -> mla_attend ->
//   mla_expand_values (with the output gate) -> o_proj
// A cache row is [rank latent | rope shared key] bf16. All pointers are in device memory.

#include <cstddef>
#include <cstdint>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/matrix.h"
#include "k3pod/kernels/step_chunks.h"

namespace k3pod::kernels {

struct MlaDims {
    int32_t heads = 0;
    int32_t nope = 0;   // 128
    int32_t rope = 0;   // 64, a multiple of 16, at most 64; never rotated
    int32_t value = 0;  // 128
    int32_t rank = 0;   // 512, a multiple of 16, at most 512
    constexpr int32_t query_width() const { return nope + rope; }
    constexpr int32_t cache_width() const { return rank + rope; }
};

// The pages of one layer: page p at pages + p * page_stride (in elements). Page i of a sequence,
// chunks.page_table[c, i], holds its positions [i * page_tokens, (i + 1) * page_tokens).
struct MlaCache {
    Bf16* pages = nullptr;  // each [page_tokens, rank + rope], 16-byte aligned
    int64_t page_stride = 0;
    int32_t page_tokens = 0;  // a multiple of 16
};

// Writes the cache rows of all chunks: RMSNorm of the latent part, the rest as it is, as bf16.
struct MlaWriteLatentsArgs {
    MlaDims dims;
    StepChunks chunks;
    const float* kv = nullptr;           // [R, rank + rope], output of kv_a
    int64_t kv_stride = 0;               // floats from row to row; 0: rank + rope
    const float* norm_weight = nullptr;  // [rank]
    float eps = 0;
    MlaCache cache;
};
Status mla_write_latents(const MlaWriteLatentsArgs& args, CudaStream stream);

// latent_q[r, h] = [W_UK[h]^T q_nope[r, h] | q_rope[r, h]] * scale, rounded to bf16 once.
// W_UK[h] is rows [h * (nope + value), + nope) of kv_b.
struct MlaAbsorbQueryArgs {
    MlaDims dims;
    int32_t rows = 0;          // R
    MatrixView kv_b;           // [heads * (nope + value), rank], any format
    const float* q = nullptr;  // [R, heads, nope + rope]
    float scale = 1;           // of the scores, (nope + rope)^-0.5
    Bf16* latent_q = nullptr;  // [R, heads, rank + rope]
};
Status mla_absorb_query(const MlaAbsorbQueryArgs& args, CudaStream stream);

// Causal attention of every chunk's rows over their sequences' cache, rows of this step included
// (written before). score = <latent_q, cache row>, softmax in fp32, out = sum of p * latent part.
// Long sequences are split over the GPU and merged in a fixed order: a row's bits depend on its
// sequence and on `num_splits`.
struct MlaAttendArgs {
    MlaDims dims;
    StepChunks chunks;
    int32_t rows = 0;                // R, rows of latent_q
    const Bf16* latent_q = nullptr;  // [R, heads, rank + rope], scaled
    MlaCache cache;
    int32_t num_splits = 1;          // mla_num_splits() of the bucket
    std::byte* workspace = nullptr;  // mla_workspace_bytes(), aligned to 256; null for 1 split
    float* latent_out = nullptr;     // [R, heads, rank]
};
Status mla_attend(const MlaAttendArgs& args, CudaStream stream);

// How many parts each sequence is cut into so that a step of `chunks` with sequences of up to
// max_context tokens fills the current device. Any number gives right results at any length.
int32_t mla_num_splits(const MlaDims& dims, const StepChunks& chunks, int32_t max_context);
int64_t mla_workspace_bytes(const MlaDims& dims, int32_t rows, int32_t num_splits);

// o[r, h] = W_UV[h] latent_out[r, h], times sigmoid(g[r, h]) with g. W_UV[h] is rows
// [h * (nope + value) + nope, + value) of kv_b.
struct MlaExpandValuesArgs {
    MlaDims dims;
    int32_t rows = 0;
    MatrixView kv_b;
    const float* latent_out = nullptr;  // [R, heads, rank]
    const float* g = nullptr;           // [R, heads * value] or null
    int64_t g_stride = 0;               // floats from row to row; 0: heads * value
    // At least one of the two, both [R, heads * value]: input of o_proj.
    float* o = nullptr;
    Bf16* o_bf16 = nullptr;
};
Status mla_expand_values(const MlaExpandValuesArgs& args, CudaStream stream);

}  // namespace k3pod::kernels

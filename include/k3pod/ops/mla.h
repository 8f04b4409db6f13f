#pragma once
// Gated MLA without rotation, in the absorbed form over the latent cache. Per layer:
//   mla_write_latents; q = q_b(RMSNorm(q_a x)) -> mla_absorb_query -> mla_attend ->
//   mla_expand_values
//   -> mla_output_gate -> o_proj
// A cache row is [rank latent | rope shared key] bf16, pages of page_tokens rows.

#include <cstdint>
#include <span>

#include "k3pod/base/bf16.h"
#include "k3pod/device/matrix.h"

namespace k3pod::ops {

inline constexpr int32_t kMlaBlockTokens = 16;  // cached tokens per softmax update
inline constexpr int32_t kMlaMaxRank = 512;     // and a multiple of 16
inline constexpr int32_t kMlaMaxRope = 64;

struct MlaShape {
    int32_t heads = 0;
    int32_t nope = 0;                                    // 128
    int32_t rope = 0;                                    // 64; never rotated
    int32_t value = 0;                                   // 128
    int32_t rank = 0;                                    // 512
    int32_t query_width() const { return nope + rope; }  // of one head, before absorption
    int32_t cache_width() const { return rank + rope; }
};

// The cache of one sequence in one layer. Page p holds positions [p * page_tokens, (p+1) *
// page_tokens).
struct MlaCacheWriter {
    std::span<const std::span<Bf16>> pages;  // each [page_tokens, cache_width]
    int32_t page_tokens = 0;                 // a multiple of kMlaBlockTokens
};
struct MlaCacheView {
    std::span<const std::span<const Bf16>> pages;
    int32_t page_tokens = 0;
};

// Writes the rows of positions [position, position + T): RMSNorm of the latent part, the rest as it
// is.
struct MlaWriteLatentsArgs {
    MlaShape shape;
    int32_t tokens = 0;
    int32_t position = 0;
    std::span<const float> kv;           // [T, rank + rope], output of kv_a_proj
    std::span<const float> norm_weight;  // [rank]
    float eps = 0;
    MlaCacheWriter cache;
};
void mla_write_latents(const MlaWriteLatentsArgs& args);

// latent_q[t, h] = [W_UK[h]^T q_nope[t, h] | q_rope[t, h]]. W_UK[h] is rows
// [h * (nope + value), + nope) of kv_b.
struct MlaAbsorbQueryArgs {
    MlaShape shape;
    int32_t tokens = 0;
    MatrixView kv_b;            // [heads * (nope + value), rank]
    std::span<const float> q;   // [T, heads, nope + rope]
    std::span<float> latent_q;  // [T, heads, rank + rope]
};
void mla_absorb_query(const MlaAbsorbQueryArgs& args);

// Causal attention of T consecutive query tokens of one sequence: token t sees the cached positions
// [0, position + t], which must have been written. score = <latent_q, row> * scale, softmax fp32,
// out = sum of p * latent part of the row. Online softmax over blocks of kMlaBlockTokens positions
// counted from 0: a token's bits depend on its position and the cache alone.
struct MlaAttendArgs {
    MlaShape shape;
    int32_t tokens = 0;
    int32_t position = 0;
    std::span<const float> latent_q;  // [T, heads, rank + rope]
    float scale = 0;                  // (nope + rope)^-0.5
    MlaCacheView cache;
    std::span<float> latent_out;  // [T, heads, rank]
};
void mla_attend(const MlaAttendArgs& args);

// o[t, h] = W_UV[h] latent_out[t, h]. W_UV[h] is rows [h * (nope + value) + nope, + value) of kv_b.
struct MlaExpandValuesArgs {
    MlaShape shape;
    int32_t tokens = 0;
    MatrixView kv_b;
    std::span<const float> latent_out;  // [T, heads, rank]
    std::span<float> o;                 // [T, heads, value]
};
void mla_expand_values(const MlaExpandValuesArgs& args);

// o = o * sigmoid(g), in place. Both [T, heads * value].
void mla_output_gate(std::span<const float> g, std::span<float> o);

}  // namespace k3pod::ops

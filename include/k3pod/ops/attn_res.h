#pragma once
// Attention Residuals: the input of a sublayer is a softmax mixture over depth (docs/model.md).

#include <cstdint>
#include <span>

namespace k3pod::ops {

inline constexpr int32_t kMaxAttnResBlocks = 31;

// For each token, over the candidates c = blocks in order, then prefix:
//   logit_c = dot(c, mixer) * rsqrt(mean(c^2) + eps);  p = softmax(logit);  mix = sum_c p_c * c
// The values mixed are the raw candidates. Without blocks the mixture is prefix, bit for bit.
struct AttnResMixArgs {
    int32_t tokens = 0;
    std::span<const std::span<const float>> blocks = {};  // n frozen accumulators, each [T, H]
    std::span<const float> prefix;                        // [T, H] running accumulator
    std::span<const float> mixer;                         // [H] norm weight times projection
    float eps = 0;
    // Not empty: out = RMSNorm(mix; norm_weight, norm_eps), the norm in front of the sublayer.
    std::span<const float> norm_weight = {};  // [H] or empty
    float norm_eps = 0;
    std::span<float> out = {};  // [T, H]; may be prefix, not a block
};

void attn_res_mix(const AttnResMixArgs& args);

}  // namespace k3pod::ops

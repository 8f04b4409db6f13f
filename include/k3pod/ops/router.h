#pragma once

#include <cstdint>
#include <span>

namespace k3pod::ops {

inline constexpr int32_t kMaxExperts = 4096;
inline constexpr int32_t kMaxTopK = 64;

// Picks top_k experts per token. score = sigmoid(logit); the bias takes part in the choice alone:
//   chosen = the K largest score + bias, in descending order, ties to the lower expert id
//   weight = score / (sum of the chosen scores + 1e-20) * scaling
// Logits must be fp32 sums (linear() with the router's matrix): rounded to bf16 they change the
// chosen set of one token in twenty. A token with NaN logits gets K distinct valid ids and NaN
// weights.
struct RouterArgs {
    int32_t tokens = 0;
    int32_t num_experts = 0;        // E, at most kMaxExperts
    int32_t top_k = 0;              // K, at most E and kMaxTopK
    std::span<const float> logits;  // [T, E]
    std::span<const float> bias;    // [E]
    float scaling = 1;              // routed_scaling_factor
    std::span<uint16_t> experts;    // [T, K]
    std::span<float> weights;       // [T, K]
};

void route(const RouterArgs& args);

}  // namespace k3pod::ops

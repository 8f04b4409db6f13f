#pragma once

#include <cstdint>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::kernels {

inline constexpr int32_t kMaxRouterExperts = 4096;
inline constexpr int32_t kMaxRouterTopK = 64;

// score = sigmoid(logit); chosen = the K largest score + bias in descending order, ties to the
// lower id; weight = score / (sum of the chosen scores + 1e-20) * scaling. A row with NaN logits
// gets K distinct valid ids and NaN weights.
struct RouterArgs {
    int32_t rows = 0;
    int32_t num_experts = 0;        // E, at most kMaxRouterExperts
    int32_t top_k = 0;              // K, at most E and kMaxRouterTopK
    const float* logits = nullptr;  // [rows, E]
    const float* bias = nullptr;    // [E]
    float scaling = 1;
    uint16_t* experts = nullptr;  // [rows, K]
    float* weights = nullptr;     // [rows, K]
};
Status route(const RouterArgs& args, CudaStream stream);

}  // namespace k3pod::kernels

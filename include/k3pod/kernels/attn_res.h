#pragma once

#include <cstdint>
#include <span>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::kernels {

inline constexpr int32_t kMaxAttnResBlocks = 31;

// The mixture over depth in front of a sublayer and, fused, what surrounds it. For each row:
//   prefix += addend                                     (when there is one; stored)
//   logit_c = dot(c, mixer) * rsqrt(mean(c^2) + eps)     for the candidates blocks..., prefix
//   mix = sum_c softmax(logit)_c * c                     (without blocks: prefix, bit for bit)
//   out = RMSNorm(mix; norm_weight, norm_eps)            (without norm_weight: mix)
struct AttnResMixArgs {
    int32_t rows = 0;
    int32_t hidden = 0;                    // H
    std::span<const float* const> blocks;  // host array of device pointers, each [rows, H]
    float* prefix = nullptr;               // [rows, H] running accumulator
    const float* addend = nullptr;         // [rows, H] or null: the output of the last sublayer
    const float* mixer = nullptr;          // [H] norm weight times projection; null without blocks
    float eps = 0;
    const float* norm_weight = nullptr;  // [H] or null
    float norm_eps = 0;
    // At least one of the two, both [rows, H]; out may be prefix when there is no addend.
    float* out = nullptr;
    Bf16* out_bf16 = nullptr;
};
Status attn_res_mix(const AttnResMixArgs& args, CudaStream stream);

}  // namespace k3pod::kernels

#pragma once

#include <cstdint>
#include <span>

namespace k3pod::ops {

// y = weight * x * rsqrt(mean(x^2) + eps), per row, fp32 throughout (one rounding at the end on
// back ends whose stream is bf16). y may be x. width = weight.size().
void rms_norm(int32_t tokens, std::span<const float> weight,  // [width]
              float eps, std::span<const float> x,            // [T, width]
              std::span<float> y);                            // [T, width]

}  // namespace k3pod::ops

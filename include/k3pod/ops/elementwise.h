#pragma once
// Element-wise ops over spans of equal length. exp, tanh and sigmoid here and in the other ops are
// vectorised, within 1e-6 relative of the exact value; NaN stays NaN. y may be x.

#include <span>

#include "k3pod/base/bf16.h"

namespace k3pod::ops {

void silu(std::span<const float> x, std::span<float> y);  // x * sigmoid(x)
void sigmoid(std::span<const float> x, std::span<float> y);
void add(std::span<const float> x, std::span<float> y);     // y += x
void to_bf16(std::span<const float> x, std::span<Bf16> y);  // nearest even, as k3pod::to_bf16
void to_f32(std::span<const Bf16> x, std::span<float> y);

}  // namespace k3pod::ops

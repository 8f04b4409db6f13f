#pragma once

#include <cstdint>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::kernels {

// y = weight * x * rsqrt(mean(x^2) + eps), per row, fp32 with one rounding at the end.
struct RmsNormArgs {
    int32_t rows = 0;
    int32_t width = 0;
    const float* weight = nullptr;  // [width]
    float eps = 0;
    const float* x = nullptr;  // [rows, width]
    int64_t x_stride = 0;      // floats from row to row; 0: width
    // At least one of the two, both [rows, width].
    float* y = nullptr;  // may be x when x_stride is 0 or width
    Bf16* y_bf16 = nullptr;
};
Status rms_norm(const RmsNormArgs& args, CudaStream stream);

}  // namespace k3pod::kernels

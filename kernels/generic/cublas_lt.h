#pragma once
// cuBLASLt, loaded when the first large product asks for it: nobody has to have it.

#include <cstddef>
#include <cstdint>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::kernels {

// Whether the library is there. Any thread.
bool has_cublas_lt();

// y[tokens, rows] (+)= x[tokens, cols] W^T, W [rows, cols], both bf16, all in device memory.
struct Bf16Product {
    int32_t tokens = 0, rows = 0, cols = 0;
    const Bf16* x = nullptr;  // aligned to 16, as is W
    const Bf16* w = nullptr;
    float* y = nullptr;
    int64_t y_stride = 0;
    bool adds = false;
    std::byte* workspace = nullptr;  // kCublasWorkspaceBytes
};
inline constexpr int64_t kCublasWorkspaceBytes = int64_t{32} << 20;
Status multiply_bf16(const Bf16Product& product, CudaStream stream);

}  // namespace k3pod::kernels

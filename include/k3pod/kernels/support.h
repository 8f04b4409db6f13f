#pragma once
// Whether this program has machine code for a GPU.

#include <cstdint>

#include "k3pod/base/status.h"

namespace k3pod::kernels {

// kFailedPrecondition names the GPU, its compute capability and what the kernels were built for.
Status check_gpu_supported(int32_t device);

}  // namespace k3pod::kernels

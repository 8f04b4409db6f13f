#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "k3pod/device/cuda.h"

namespace k3pod {

Status cuda_status(int error, const char* what) {
    const auto code = static_cast<cudaError_t>(error);
    if (code == cudaSuccess) return Status::ok();
    const std::string message =
        fmt::format("{}: {} ({})", what, cudaGetErrorName(code), cudaGetErrorString(code));
    if (code == cudaErrorMemoryAllocation) return resource_exhausted(message);
    return internal_error(message);
}

}  // namespace k3pod

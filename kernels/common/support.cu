#include "k3pod/kernels/support.h"

#include <cuda_runtime.h>

#include <string>

#include "k3pod/device/cuda.h"

namespace k3pod::kernels {
namespace {

// Compiled for the same GPUs as every kernel in generic/.
__global__ void probe() {}

}  // namespace

Status check_gpu_supported(int32_t device) {
    K3POD_ASSIGN(const CudaProperties gpu, cuda_properties(device));
    K3POD_TRY(use_cuda_device(device));
    cudaFuncAttributes found;
    const cudaError_t error = cudaFuncGetAttributes(&found, probe);
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction) {
        return cuda_status(error, "cudaFuncGetAttributes");
    }
    (void)cudaGetLastError();
    return failed_precondition(
        "the kernels were built for " K3POD_CUDA_ARCHS " and have no code for the " + gpu.name +
        " (compute capability " + std::to_string(gpu.major) + "." + std::to_string(gpu.minor) +
        "); build with -DK3POD_CUDA_ARCHS set to it");
}

}  // namespace k3pod::kernels

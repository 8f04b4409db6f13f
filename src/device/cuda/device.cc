#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda/call.h"
#include "k3pod/device/cuda.h"

namespace k3pod {

bool cuda_is_built() {
    return true;
}

int32_t num_cuda_devices() {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    // The failure of a machine without a driver must not be found by the next launch.
    (void)cudaGetLastError();
    return 0;
}

Result<CudaProperties> cuda_properties(int32_t device) {
    const int32_t count = num_cuda_devices();
    if (device < 0 || device >= count) {
        return not_found(
            fmt::format("there is no CUDA device {}: this process sees {} of them; check the "
                        "driver (nvidia-smi) and CUDA_VISIBLE_DEVICES",
                        device, count));
    }
    cudaDeviceProp found;
    CUDA_TRY(cudaGetDeviceProperties(&found, device));
    int current = 0;
    CUDA_TRY(cudaGetDevice(&current));
    CUDA_TRY(cudaSetDevice(device));
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    const Status asked = cuda_status(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    CUDA_TRY(cudaSetDevice(current));
    K3POD_TRY(asked);
    return CudaProperties{.name = found.name,
                          .major = found.major,
                          .minor = found.minor,
                          .num_sms = found.multiProcessorCount,
                          .memory_bytes = static_cast<int64_t>(total_bytes),
                          .free_bytes = static_cast<int64_t>(free_bytes),
                          .l2_bytes = found.l2CacheSize,
                          .max_shared_bytes = static_cast<int64_t>(found.sharedMemPerBlockOptin),
                          .is_integrated = found.integrated != 0};
}

Status use_cuda_device(int32_t device) {
    return cuda_status(cudaSetDevice(device), "cudaSetDevice");
}

}  // namespace k3pod

// The GPU's tier in a program without the CUDA back end.

#include "experts/cuda/cuda_tier.h"
#include "k3pod/device/cuda.h"

namespace k3pod {

Result<CudaProperties> usable_gpu() {
    return cuda_properties(0);
}

Result<std::unique_ptr<ExpertTier>> load_cuda_tier(const ExpertTierSource&, int32_t,
                                                   const LoadProgress&) {
    return use_cuda_device(0);
}

}  // namespace k3pod

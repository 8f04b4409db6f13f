// The GPU's tier in a program without the CUDA back end.

#include "experts/cuda/cuda_tier.h"
#include "k3pod/device/cuda.h"

namespace k3pod {

Result<CudaProperties> usable_gpu() {
    return cuda_properties(0);
}

Result<std::unique_ptr<TierBuilder>> make_cuda_builder(const ModelConfig&, Release,
                                                       std::span<const Shard>, int32_t) {
    return use_cuda_device(0);
}

}  // namespace k3pod

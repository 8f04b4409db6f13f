// --gpu in a program without the CUDA back end.

#include "bench/exchange/gpu_hand_off.h"
#include "k3pod/device/cuda.h"

namespace k3pod::bench {

Result<std::vector<Percentiles>> measure_gpu_hand_off(const GpuPlan&) {
    return use_cuda_device(0);
}

Result<std::vector<Percentiles>> measure_bare_flag(const GpuPlan&, int) {
    return use_cuda_device(0);
}

}  // namespace k3pod::bench

#include "bench/support/gpu_read_rate.h"

#include <algorithm>

#include "common/launch.cuh"
#include "k3pod/device/cuda.h"

namespace k3pod::bench {
namespace {

constexpr int64_t kBytes = int64_t{4} << 30;
constexpr int kThreads = 512;
constexpr int kInFlight = 8;  // loads of 16 bytes a thread
constexpr int kBlocksPerSm = 4;
constexpr int kPasses = 10;

// Constant memory is read faster than weights are.
__global__ void fill_random(uint4* data, int64_t count) {
    const int64_t step = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
        uint64_t z = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        const uint64_t w = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        data[i] = {static_cast<uint32_t>(z), static_cast<uint32_t>(z >> 32),
                   static_cast<uint32_t>(w), static_cast<uint32_t>(w >> 32)};
    }
}

// Every byte once. The sum is only stored when it has a value that it does not have, so that the
// loads stay.
__global__ void __launch_bounds__(kThreads, 2)
    read_all(const uint4* data, int64_t count, uint32_t* out) {
    const int64_t step = int64_t{gridDim.x} * kThreads;
    uint32_t sum = 0;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
         i += kInFlight * step) {
        uint4 values[kInFlight];
#pragma unroll
        for (int k = 0; k < kInFlight; ++k)
            values[k] = i + k * step < count ? __ldcs(data + i + k * step) : uint4{};
#pragma unroll
        for (int k = 0; k < kInFlight; ++k)
            sum += values[k].x ^ values[k].y ^ values[k].z ^ values[k].w;
    }
    if (sum == 0x5eed5eedu) *out = sum;
}

}  // namespace

Result<double> gpu_read_rate() {
    K3POD_ASSIGN(const CudaProperties gpu, cuda_properties(0));
    K3POD_ASSIGN(const DeviceBuffer data, DeviceBuffer::create(kBytes));
    K3POD_ASSIGN(const DeviceBuffer out, DeviceBuffer::create(4));
    K3POD_ASSIGN(const DeviceStream stream, DeviceStream::create());
    K3POD_ASSIGN(const DeviceEvent begin, DeviceEvent::create());
    K3POD_ASSIGN(const DeviceEvent end, DeviceEvent::create());
    const kernels::LaunchShape shape{.grid = static_cast<unsigned>(gpu.num_sms * kBlocksPerSm),
                                     .block = kThreads};
    K3POD_TRY(kernels::launch("fill_random", fill_random, shape, stream.get(), data.as<uint4>(),
                              kBytes / 16));
    double best_us = 0;
    for (int pass = 0; pass < kPasses; ++pass) {
        K3POD_TRY(begin.record(stream.get()));
        K3POD_TRY(kernels::launch("read_all", read_all, shape, stream.get(), data.as<const uint4>(),
                                  kBytes / 16, out.as<uint32_t>()));
        K3POD_TRY(end.record(stream.get()));
        K3POD_TRY(stream.synchronize());
        K3POD_ASSIGN(const double us, end.microseconds_since(begin));
        best_us = pass == 0 ? us : std::min(best_us, us);
    }
    return static_cast<double>(kBytes) / (best_us * 1e-6);
}

}  // namespace k3pod::bench

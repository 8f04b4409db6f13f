#include "bench/support/gpu_memory.h"

#include <vector>

#include "bench/support/samples.h"
#include "common/block.cuh"
#include "common/launch.cuh"

namespace k3pod::bench {
namespace {

constexpr int kThreads = 512;
constexpr int kInFlight = 8;  // loads of 16 bytes a thread
constexpr int kReplays = 7;

__global__ void fill(uint4* data, int64_t count, WordPattern pattern) {
    const int64_t step = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t words[4];
        uint64_t mixed = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
        for (uint32_t& word : words) {
            mixed = (mixed ^ (mixed >> 31)) * 0xbf58476d1ce4e5b9u;
            word = (static_cast<uint32_t>(mixed >> 32) & pattern.keep) | pattern.set;
        }
        data[i] = {words[0], words[1], words[2], words[3]};
    }
}

// The sum is only stored when it has a value that it does not have, so that the loads stay.
__global__ void __launch_bounds__(kThreads, 2) read(const uint4* data, int64_t count) {
    const int64_t step = int64_t{gridDim.x} * kThreads;
    uint32_t sum = 0;
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
         i += kInFlight * step) {
        uint4 values[kInFlight];
#pragma unroll
        for (int k = 0; k < kInFlight; ++k) {
            values[k] = i + k * step < count ? __ldcs(data + i + k * step) : uint4{};
        }
#pragma unroll
        for (int k = 0; k < kInFlight; ++k) {
            sum += values[k].x ^ values[k].y ^ values[k].z ^ values[k].w;
        }
    }
    if (sum == 0x5eed5eedu) *const_cast<uint32_t*>(&data[0].x) = sum;
}

Result<unsigned> num_sms() {
    K3POD_ASSIGN(const CudaProperties gpu, cuda_properties(0));
    return static_cast<unsigned>(gpu.num_sms);
}

}  // namespace

Status fill_words(std::byte* data, int64_t bytes, const WordPattern& pattern, CudaStream stream) {
    K3POD_ASSIGN(const unsigned sms, num_sms());
    return kernels::launch("fill", fill, {.grid = 4 * sms, .block = kThreads}, stream,
                           reinterpret_cast<uint4*>(data), bytes / 16, pattern);
}

Status read_once(const std::byte* data, int64_t bytes, CudaStream stream) {
    static const Result<unsigned> sms = num_sms();
    if (!sms) return sms.status();
    return kernels::launch("read", read, {.grid = 4 * *sms, .block = kThreads}, stream,
                           reinterpret_cast<const uint4*>(data), bytes / 16);
}

Result<double> time_of_launch(int32_t count,
                              const std::function<Status(int32_t, CudaStream)>& launch) {
    K3POD_ASSIGN(const DeviceStream stream, DeviceStream::create());
    K3POD_ASSIGN(const DeviceEvent begin, DeviceEvent::create());
    K3POD_ASSIGN(const DeviceEvent end, DeviceEvent::create());
    K3POD_ASSIGN(const DeviceGraph graph,
                 DeviceGraph::capture(stream.get(), [&](CudaStream s) -> Status {
                     for (int32_t i = 0; i < count; ++i) K3POD_TRY(launch(i, s));
                     return Status::ok();
                 }));
    std::vector<double> samples;
    for (int replay = 0; replay <= kReplays; ++replay) {
        K3POD_TRY(begin.record(stream.get()));
        K3POD_TRY(graph.launch(stream.get()));
        K3POD_TRY(end.record(stream.get()));
        K3POD_TRY(stream.synchronize());
        K3POD_ASSIGN(const double us, end.microseconds_since(begin));
        if (replay > 0) samples.push_back(us / count);
    }
    return percentiles_of(samples).p50;
}

}  // namespace k3pod::bench

#include "bench/exchange/bare_flag.h"

#include "common/launch.cuh"

namespace k3pod::bench {
namespace {

constexpr int32_t kMaxThreads = 1024;
constexpr uint64_t kLimitNs = 2'000'000'000;

__device__ uint64_t now_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ void raise(uint64_t* word, uint64_t value) {
    asm volatile("fence.acq_rel.sys; st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value)
                 : "memory");
}

__device__ void wait_for(const uint64_t* word, uint64_t value) {
    const uint64_t start = now_ns();
    uint64_t found = 0;
    do {
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(found) : "l"(word) : "memory");
    } while (found != value && now_ns() - start < kLimitNs);
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

__global__ void bare_flag_kernel(BareFlagArgs args) {
    const bool has_part = static_cast<int32_t>(threadIdx.x) * 16 < args.row_bytes;
    if (has_part) {
        reinterpret_cast<uint4*>(args.out)[threadIdx.x] =
            reinterpret_cast<const uint4*>(args.from)[threadIdx.x];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint64_t number = ++*args.number;
        raise(args.request, number);
        wait_for(args.reply, number);
    }
    __syncthreads();
    if (has_part) {
        reinterpret_cast<uint4*>(args.to)[threadIdx.x] =
            __ldcv(reinterpret_cast<const uint4*>(args.in) + threadIdx.x);
    }
}

}  // namespace

Status bare_flag_exchange(const BareFlagArgs& args, CudaStream stream) {
    const int32_t threads = args.row_bytes / 16;
    if (args.row_bytes % 16 != 0 || threads > kMaxThreads) {
        return invalid_argument(
            "bare_flag_exchange: row_bytes must be a multiple of 16 up to 16 KiB");
    }
    const kernels::LaunchShape shape{
        .grid = 1, .block = dim3(threads == 0 ? 1u : static_cast<unsigned>(threads))};
    return kernels::launch("bare_flag_exchange", bare_flag_kernel, shape, stream, args);
}

}  // namespace k3pod::bench

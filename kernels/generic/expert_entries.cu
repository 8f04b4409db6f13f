#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/require.h"
#include "k3pod/kernels/experts.h"

namespace k3pod::kernels {
namespace {

constexpr int kThreads = 256;

// An entry goes where the number of smaller ones says: no two are equal.
__global__ void __launch_bounds__(kThreads)
    expert_entries_kernel(const __grid_constant__ ExpertEntriesArgs args) {
    __shared__ uint64_t keys[kThreads];
    wait_for_previous();
    const int32_t rows = args.num_rows == nullptr ? args.rows : min(*args.num_rows, args.rows);
    const int32_t count = rows * args.top_k;
    const auto key_of = [&](int32_t i) {
        return static_cast<uint64_t>(args.experts[i]) << 32 | static_cast<uint32_t>(i / args.top_k);
    };
    const auto i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
    const uint64_t mine = i < count ? key_of(i) : 0;
    int32_t place = 0;
    for (int32_t base = 0; base < count; base += kThreads) {
        const int32_t other = base + static_cast<int32_t>(threadIdx.x);
        __syncthreads();
        keys[threadIdx.x] = other < count ? key_of(other) : ~uint64_t{0};
        __syncthreads();
        const int32_t n = min(kThreads, count - base);
        for (int32_t k = 0; k < n; ++k) place += keys[k] < mine ? 1 : 0;
    }
    if (i == 0) *args.num_entries = count;
    if (i >= count) return;
    args.entries[place] = {static_cast<uint16_t>(i / args.top_k), args.experts[i], args.weights[i]};
}

}  // namespace

Status expert_entries(const ExpertEntriesArgs& args, CudaStream stream) {
    constexpr const char* kName = "expert_entries";
    K3POD_TRY(
        require(args.rows > 0 && args.rows <= 65536, kName, "rows", args.rows, "in [1, 65536]"));
    K3POD_TRY(require(args.top_k > 0, kName, "top_k", args.top_k, "above 0"));
    const LaunchShape shape{.grid = blocks_for(int64_t{args.rows} * args.top_k, kThreads),
                            .block = kThreads,
                            .overlaps_previous = true};
    return launch(kName, expert_entries_kernel, shape, stream, args);
}

}  // namespace k3pod::kernels

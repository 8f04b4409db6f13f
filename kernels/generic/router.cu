#include "k3pod/kernels/router.h"

#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/require.h"

namespace k3pod::kernels {
namespace {

constexpr int kMaxWarps = 32;

// An expert as one number: larger is chosen earlier, all differ. Upper half: score + bias, mapped
// so that integers compare as the floats do, NaN as -inf; lower half: the lower id is the larger.
using Key = unsigned long long;
constexpr Key kNone = 0;

__device__ Key key_of(float value, int expert) {
    if (isnan(value)) value = -INFINITY;
    // +0 and -0 are equal: ids decide.
    const unsigned bits = __float_as_uint(value == 0.0f ? 0.0f : value);
    const unsigned ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return static_cast<Key>(ordered) << 32 | (0xffffffffu - static_cast<unsigned>(expert));
}

__device__ int expert_of(Key key) {
    return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}

__device__ Key larger(Key a, Key b) {
    return a > b ? a : b;
}

// One step of a bitonic network over the lanes: the larger of each pair goes to the lane without
// `distance` in its index where descending, else to the other.
__device__ Key exchange(Key key, int distance, bool descending) {
    const Key other = __shfl_xor_sync(kAllLanes, key, distance);
    const bool is_low = (lane_idx() & distance) == 0;
    return (key > other) == (is_low == descending) ? key : other;
}

// Sorts a bitonic sequence of one key a lane, largest first.
__device__ Key sort_bitonic(Key key) {
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
        key = exchange(key, distance, true);
    }
    return key;
}

// Sorts one key a lane, largest first.
__device__ Key sort_lanes(Key key) {
#pragma unroll
    for (int size = 2; size < kWarpSize; size *= 2) {
        const bool descending = (lane_idx() & size) == 0;
#pragma unroll
        for (int distance = size / 2; distance > 0; distance /= 2) {
            key = exchange(key, distance, descending);
        }
    }
    return sort_bitonic(key);
}

// The 32 largest of two sorted lists, sorted.
__device__ Key merge(Key list, Key other) {
    return sort_bitonic(larger(list, __shfl_xor_sync(kAllLanes, other, kWarpSize - 1)));
}

// The 32 largest keys below `bound` in the first warp, one a lane, largest first. `lists` is free
// again after the next __syncthreads().
__device__ Key largest_below(Key bound, const float* scores, const RouterArgs& args,
                             Key (*lists)[kWarpSize]) {
    Key best = kNone;
    const int step = static_cast<int>(blockDim.x);
    const int rounds = (args.num_experts + step - 1) / step;
    for (int r = 0; r < rounds; ++r) {
        const int e = static_cast<int>(threadIdx.x) + r * step;
        Key key = e < args.num_experts ? key_of(scores[e] + args.bias[e], e) : kNone;
        if (key >= bound) key = kNone;
        key = sort_lanes(key);
        best = r == 0 ? key : merge(best, key);
    }
    for (int half = kMaxWarps / 2; half > 0; half /= 2) {
        if (warp_idx() >= half && warp_idx() < 2 * half) lists[warp_idx()][lane_idx()] = best;
        __syncthreads();
        if (warp_idx() < half && warp_idx() + half < num_warps()) {
            best = merge(best, lists[warp_idx() + half][lane_idx()]);
        }
    }
    return best;
}

// One block a row; sorted lists of 32 are merged from warp to warp. More than 32 picks take further
// rounds, each over what the last one left.
__global__ void __launch_bounds__(kMaxWarps* kWarpSize) route_kernel(RouterArgs args) {
    __shared__ Key lists[kMaxWarps][kWarpSize];
    __shared__ Key bound;
    __shared__ float weights[kMaxRouterTopK];
    extern __shared__ float scores[];  // [E]
    wait_for_previous();
    const float* logits = args.logits + int64_t{blockIdx.x} * args.num_experts;
    const int64_t out = int64_t{blockIdx.x} * args.top_k;
    for (int e = static_cast<int>(threadIdx.x); e < args.num_experts;
         e += static_cast<int>(blockDim.x)) {
        scores[e] = sigmoid(logits[e]);
    }
    if (threadIdx.x == 0) bound = ~Key{0};
    __syncthreads();
    for (int first = 0; first < args.top_k; first += kWarpSize) {
        const Key best = largest_below(bound, scores, args, lists);
        __syncthreads();
        if (warp_idx() == 0) {
            const int pick = first + lane_idx();
            if (pick < args.top_k) {
                args.experts[out + pick] = static_cast<uint16_t>(expert_of(best));
                weights[pick] = scores[expert_of(best)];
            }
            if (lane_idx() == kWarpSize - 1) bound = best;
        }
        __syncthreads();
    }
    float sum = 0;  // in the order of the picks
    for (int i = 0; i < args.top_k; ++i) sum += weights[i];
    for (int i = static_cast<int>(threadIdx.x); i < args.top_k; i += static_cast<int>(blockDim.x)) {
        args.weights[out + i] = weights[i] / (sum + 1e-20f) * args.scaling;
    }
}

}  // namespace

Status route(const RouterArgs& args, CudaStream stream) {
    constexpr const char* kName = "route";
    K3POD_TRY(require(args.rows >= 0, kName, "rows", args.rows, "at least 0"));
    K3POD_TRY(require(args.num_experts > 0 && args.num_experts <= kMaxRouterExperts, kName,
                      "num_experts", args.num_experts, "in [1, 4096]"));
    K3POD_TRY(
        require(args.top_k > 0 && args.top_k <= kMaxRouterTopK && args.top_k <= args.num_experts,
                kName, "top_k", args.top_k, "in [1, min(num_experts, 64)]"));
    if (args.rows == 0) return Status::ok();
    const LaunchShape shape{.grid = static_cast<unsigned>(args.rows),
                            .block = block_size_for(args.num_experts, kMaxWarps * kWarpSize),
                            .shared_bytes = args.num_experts * int64_t{sizeof(float)},
                            .overlaps_previous = true};
    return launch(kName, route_kernel, shape, stream, args);
}

}  // namespace k3pod::kernels

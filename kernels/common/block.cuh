#pragma once
// What threads of a warp and of a block do together. Sums run in one order that depends on the
// number of threads alone.

#include <cuda_runtime.h>

#include <cstdint>

namespace k3pod::kernels {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline int lane_idx() {
    return static_cast<int>(threadIdx.x) % kWarpSize;
}
__device__ inline int warp_idx() {
    return static_cast<int>(threadIdx.x) / kWarpSize;
}
__device__ inline int num_warps() {
    return static_cast<int>(blockDim.x) / kWarpSize;
}

// Lets the next kernel of the stream begin, then waits for the end of the one before. First thing
// in every kernel launched with overlaps_previous: nothing that others write may be read earlier,
// and such memory is never read through `const __restrict__`, which the compiler would hoist.
__device__ inline void wait_for_previous() {
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
}

// Sum over the groups of kLanes neighbouring lanes, in every lane.
template <int kLanes = kWarpSize>
__device__ inline float sum_lanes(float v) {
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
        v += __shfl_xor_sync(kAllLanes, v, offset);
    }
    return v;
}

template <int kLanes = kWarpSize>
__device__ inline float max_lanes(float v) {
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
        v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, offset));
    }
    return v;
}

// Sum over the block, in every thread. blockDim.x is a multiple of the warp size. `scratch` holds
// one float a warp and must not be in use; it is free again after the next __syncthreads().
__device__ inline float sum_block(float v, float* scratch) {
    v = sum_lanes(v);
    if (lane_idx() == 0) scratch[warp_idx()] = v;
    __syncthreads();
    return sum_lanes(lane_idx() < num_warps() ? scratch[lane_idx()] : 0.0f);
}

__device__ inline float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

__device__ inline float silu(float x) {
    return x * sigmoid(x);
}

// Threads for `work` items, at most `most`: whole warps.
inline unsigned block_size_for(int64_t work, int64_t most) {
    const int64_t warps = (work + kWarpSize - 1) / kWarpSize;
    const int64_t threads = warps * kWarpSize;
    return static_cast<unsigned>(threads < most ? threads : most);
}

inline unsigned blocks_for(int64_t work, int64_t per_block) {
    return static_cast<unsigned>((work + per_block - 1) / per_block);
}

}  // namespace k3pod::kernels

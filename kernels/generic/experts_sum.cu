#include "generic/experts_sum.h"

#include "common/launch.cuh"
#include "common/vectors.cuh"
#include "generic/experts_frame.cuh"

namespace k3pod::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kFloats = 4;  // of a thread

// One entry of the row that a block sums up.
struct Term {
    int32_t entry;
    int32_t num_shards;
    float weight;
};

struct Terms {
    Term at[kThreads];
    int32_t before[kThreads / kWarpSize];
    int32_t count;
};

// The row's entries among kThreads of them from `base` on, in order.
__device__ void collect(const ExpertsParams& p, int32_t base, int32_t num_entries, int32_t row,
                        Terms& terms) {
    const auto i = base + static_cast<int32_t>(threadIdx.x);
    wire::WireEntry entry;
    if (i < num_entries) entry = p.args.entries[i];
    const bool is_ours =
        i < num_entries && entry.row == row && entry.expert < p.args.table.num_experts;
    const unsigned ours = __ballot_sync(kAllLanes, is_ours);
    if (lane_idx() == 0) terms.before[warp_idx()] = __popc(ours);
    __syncthreads();
    int32_t place = __popc(ours & ((1u << lane_idx()) - 1));
    for (int w = 0; w < warp_idx(); ++w) place += terms.before[w];
    if (is_ours) {
        const int32_t* first = p.first_shards() + entry.expert;
        terms.at[place] = {i, first[1] - first[0], entry.weight};
    }
    if (threadIdx.x == kThreads - 1) terms.count = place + (is_ours ? 1 : 0);
    __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
    sum_experts_kernel(const __grid_constant__ ExpertsParams p) {
    __shared__ Terms terms;
    wait_for_previous();
    const auto row = static_cast<int32_t>(blockIdx.y);
    if (row >= p.rows()) return;
    const int32_t latent = p.args.table.latent;
    const auto col = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x) * kFloats;
    const int32_t num_entries = p.num_entries();
    Floats<kFloats> sum = {};
    for (int32_t base = 0; base < num_entries; base += kThreads) {
        collect(p, base, num_entries, row, terms);
        for (int t = 0; t < terms.count && col < latent; ++t) {
            for (int s = 0; s < terms.at[t].num_shards; ++s) {
                const float* y = p.space.y + p.place(terms.at[t].entry, s) * latent + col;
                const auto part = load<kFloats>(y);
#pragma unroll
                for (int k = 0; k < kFloats; ++k) {
                    sum.at[k] = fmaf(terms.at[t].weight, part.at[k], sum.at[k]);
                }
            }
        }
        __syncthreads();
    }
    if (col < latent) store(p.args.out + int64_t{row} * latent + col, sum);
}

}  // namespace

Status sum_experts(const ExpertsParams& p, CudaStream stream) {
    const LaunchShape shape{.grid = dim3(blocks_for(p.args.table.latent, kThreads * kFloats),
                                         static_cast<unsigned>(p.args.max_rows)),
                            .block = kThreads,
                            .overlaps_previous = true};
    return launch("sum_experts", sum_experts_kernel, shape, stream, p);
}

}  // namespace k3pod::kernels

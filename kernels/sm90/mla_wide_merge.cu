// Merges the results of the splits, in their order.

#include "common/block.cuh"
#include "common/launch.cuh"
#include "sm90/mla_wide_tile.cuh"

namespace k3pod::kernels {
namespace {

constexpr int kMergeParts = 4;  // of the splits, added up in order
constexpr int kMergeThreads = kMergeParts * kGroupThreads;
constexpr int kMergeHeads = 8;  // that a block's floats belong to

// weights[s][h]: what split s counts for the head, 0 for a split without positions.
__device__ void weigh_splits(const Partials& partials, int num_splits, int64_t first_query,
                             float (*weights)[kMergeHeads]) {
    const int head = warp_idx();
    if (head < kMergeHeads) {
        constexpr int kOfLane = kMaxMlaSplits / kWarpSize;
        SplitStats stats[kOfLane];
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
            const int s = lane_idx() + i * kWarpSize;
            stats[i] = s < num_splits ? partials.stats[s * partials.queries + first_query + head]
                                      : SplitStats{-INFINITY, 0};
            largest = fmaxf(largest, stats[i].largest);
        }
        largest = max_lanes(largest);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
            stats[i].largest = stats[i].sum > 0 ? exp2f(stats[i].largest - largest) : 0.0f;
            sum = fmaf(stats[i].largest, stats[i].sum, sum);
        }
        const float scale = 1.0f / sum_lanes(sum);
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
            const int s = lane_idx() + i * kWarpSize;
            if (s < num_splits) weights[s][head] = stats[i].largest * scale;
        }
    }
    __syncthreads();
}

// Sum of a thread's quad over splits [begin, end), each times the weights of the quad's two heads.
// Several are read before the first is waited for.
__device__ Floats<4> add_splits(const float* quads, int64_t split_stride, int begin, int end,
                                const float (*weights)[kMergeHeads], int t) {
    constexpr int kAhead = 11;
    Floats<4> sum = {};
    for (int first = begin; first < end; first += kAhead) {
        Floats<4> ahead[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            ahead[i] = load<4>(quads + min(first + i, end - 1) * split_stride);
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            const float* pair = weights[min(first + i, end - 1)] + 2 * t;
            const float even = first + i < end ? pair[0] : 0.0f;
            const float odd = first + i < end ? pair[1] : 0.0f;
            // A split without positions has written nothing.
            const bool counts = even != 0.0f || odd != 0.0f;
            Floats<4> v;
#pragma unroll
            for (int j = 0; j < 4; ++j) v.at[j] = counts ? ahead[i].at[j] : 0.0f;
            sum.at[0] = fmaf(even, v.at[0], sum.at[0]);
            sum.at[1] = fmaf(odd, v.at[1], sum.at[1]);
            sum.at[2] = fmaf(even, v.at[2], sum.at[2]);
            sum.at[3] = fmaf(odd, v.at[3], sum.at[3]);
        }
    }
    return sum;
}

// A block: one quad of every thread of a group, that is 8 heads and 64 channels.
__global__ void __launch_bounds__(kMergeThreads, 1)
    wide_merge_kernel(MlaAttendArgs args, Partials partials) {
    __shared__ float weights[kMaxMlaSplits][kMergeHeads];
    __shared__ Floats<4> sums[kMergeParts][kGroupThreads];
    wait_for_previous();
    const int chunk = static_cast<int>(blockIdx.z);
    const int query = static_cast<int>(blockIdx.y) * kHeads;
    if (query >= args.chunks.num_rows[chunk] * args.dims.heads) return;
    const int64_t token_query = int64_t{args.chunks.first_row[chunk]} * args.dims.heads + query;
    const int group = static_cast<int>(blockIdx.x) / kQuads;
    const int quad = static_cast<int>(blockIdx.x) % kQuads;
    const int64_t first_query =
        token_query + group * kGroupHeads + quad % kQuadsPerBox * kMergeHeads;
    weigh_splits(partials, args.num_splits, first_query, weights);

    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    const int part = static_cast<int>(threadIdx.x) / kGroupThreads;
    const int per_part = (args.num_splits + kMergeParts - 1) / kMergeParts;
    const int end = min((part + 1) * per_part, args.num_splits);
    const int t = thread % 4;
    const float* quads =
        partial_of(partials, 0, token_query, group) + (quad * kGroupThreads + thread) * 4;
    const Floats<4> sum =
        add_splits(quads, partials.queries * kRank, part * per_part, end, weights, t);
    sums[part][thread] = sum;
    __syncthreads();
    const int i = part;  // of the quad's floats
    float total = 0;
#pragma unroll
    for (int p = 0; p < kMergeParts; ++p) total += sums[p][thread].at[i];
    const int channel =
        quad / kQuadsPerBox * kOperandCols + thread / kWarpSize * 16 + lane_idx() / 4;
    args.latent_out[(first_query + 2 * t + i % 2) * kRank + channel + i / 2 * 8] = total;
}

}  // namespace

Status wide_mla_merge(const MlaAttendArgs& args, const Partials& partials, CudaStream stream) {
    const auto tokens = static_cast<unsigned>(args.chunks.max_rows * (args.dims.heads / kHeads));
    return launch(
        "mla_merge", wide_merge_kernel,
        {.grid = dim3(kGroups * kQuads, tokens, static_cast<unsigned>(args.chunks.num_chunks)),
         .block = kMergeThreads,
         .overlaps_previous = true},
        stream, args, partials);
}

}  // namespace k3pod::kernels

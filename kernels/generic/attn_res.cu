#include "k3pod/kernels/attn_res.h"

#include <cooperative_groups.h>

#include <utility>

#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/require.h"
#include "common/vectors.cuh"

namespace k3pod::kernels {
namespace {

namespace cg = cooperative_groups;

constexpr int kMaxCandidates = kMaxAttnResBlocks + 1;
constexpr int kMaxCluster = 8;
constexpr int kMaxWarps = 8;
constexpr int kMaxHeldBlocks = 8;  // of K3, whose columns fit the registers

// AttnResMixArgs as the kernel takes it.
struct MixRow {
    const float* blocks[kMaxAttnResBlocks];
    int32_t num_blocks;
    int32_t hidden;
    float* prefix;
    const float* addend;
    const float* mixer;
    float eps;
    const float* norm_weight;
    float norm_eps;
    float* out;
    Bf16* out_bf16;

    __device__ const float* candidate(int c) const { return c < num_blocks ? blocks[c] : prefix; }
    __device__ int num_candidates() const { return num_blocks + 1; }
};

// The columns of a row that a thread works on: at first, first + step, ... below end. It is the
// same thread that adds to a column of prefix and reads it again.
struct Columns {
    int first, end, step;
};

// A row is spread over the blocks of a cluster, each with a part of the columns, because one
// multiprocessor alone cannot read 9 rows of K3 in 4 us. What all need to know is summed here:
// totals[i] becomes the sum of of_warps[.][i] over the cluster. Each block writes its share into
// every block's `parts`, by rank, so that all add up in one order.
template <int kMost>
__device__ void sum_cluster(cg::cluster_group cluster, const float (*of_warps)[kMost],
                            float (*parts)[kMost], int count, float* totals) {
    __syncthreads();
    const int blocks = static_cast<int>(cluster.num_blocks());
    const int self = static_cast<int>(cluster.block_rank());
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        float sum = 0;
        for (int w = 0; w < num_warps(); ++w) sum += of_warps[w][i];
        for (int b = 0; b < blocks; ++b) {
            cluster.map_shared_rank(parts[self], static_cast<unsigned>(b))[i] = sum;
        }
    }
    cluster.sync();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        float sum = 0;
        for (int b = 0; b < blocks; ++b) sum += parts[b][i];
        totals[i] = sum;
    }
    __syncthreads();
}

// This thread's part of prefix += addend.
template <int kVec>
__device__ void add_to_prefix(const MixRow& row, int64_t offset, const Columns& columns) {
    for (int i = columns.first; i < columns.end; i += columns.step) {
        auto prefix = load<kVec>(row.prefix + offset + i);
        const auto addend = load<kVec>(row.addend + offset + i);
#pragma unroll
        for (int j = 0; j < kVec; ++j) prefix.at[j] += addend.at[j];
        store(row.prefix + offset + i, prefix);
    }
}

// of_warps[.][2c] and [2c + 1] = <candidate c, mixer> and |candidate c|^2 over this warp's columns.
// kMost bounds the candidates, so that all of them are read before the first is waited for.
template <int kVec, int kMost>
__device__ void project(const MixRow& row, int64_t offset, const Columns& columns,
                        float (*of_warps)[2 * kMaxCandidates]) {
    float dots[kMost] = {};
    float squares[kMost] = {};
    for (int i = columns.first; i < columns.end; i += columns.step) {
        const auto m = load<kVec>(row.mixer + i);
#pragma unroll
        for (int c = 0; c < kMost; ++c) {
            if (c >= row.num_candidates()) continue;
            const auto v = load<kVec>(row.candidate(c) + offset + i);
#pragma unroll
            for (int j = 0; j < kVec; ++j) {
                dots[c] = fmaf(v.at[j], m.at[j], dots[c]);
                squares[c] = fmaf(v.at[j], v.at[j], squares[c]);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < kMost; ++c) {
        if (c >= row.num_candidates()) continue;
        dots[c] = sum_lanes(dots[c]);
        squares[c] = sum_lanes(squares[c]);
        if (lane_idx() == 0) {
            of_warps[warp_idx()][2 * c] = dots[c];
            of_warps[warp_idx()][2 * c + 1] = squares[c];
        }
    }
}

// From the dot and the squares of this lane's candidate its probability.
__device__ float softmax_over_depth(const MixRow& row, float dot, float squares) {
    const bool is_there = lane_idx() < row.num_candidates();
    const float mean = squares / static_cast<float>(row.hidden);
    const float logit = is_there ? dot * (1.0f / sqrtf(mean + row.eps)) : -INFINITY;
    const float largest = max_lanes(logit);
    const float p = is_there ? expf(logit - largest) : 0.0f;
    return p / sum_lanes(p);
}

template <int kVec>
__device__ Floats<kVec> mix_columns(const MixRow& row, int64_t at, float weight_of_lane) {
    Floats<kVec> sum = {};
#pragma unroll 4
    for (int c = 0; c < row.num_candidates(); ++c) {
        const float weight = __shfl_sync(kAllLanes, weight_of_lane, c);
        const auto v = load<kVec>(row.candidate(c) + at);
#pragma unroll
        for (int j = 0; j < kVec; ++j) sum.at[j] = fmaf(weight, v.at[j], sum.at[j]);
    }
    return sum;
}

// Reads come twice, from memory and then from the L1 cache: registers for every candidate's columns
// would bound the shapes.
template <int kVec, int kMost>
__global__ void __launch_bounds__(kMaxWarps* kWarpSize) attn_res_mix_kernel(MixRow row) {
    __shared__ float of_warps[kMaxWarps][2 * kMaxCandidates];
    __shared__ float parts[kMaxCluster][2 * kMaxCandidates];
    __shared__ float parts_of_norm[kMaxCluster][1];
    __shared__ float norm_of_warps[kMaxWarps][1];
    __shared__ float totals[2 * kMaxCandidates];
    __shared__ float norm_total;
    extern __shared__ float mixed[];  // this block's columns
    const cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();  // every block has started: its shared memory may be written
    wait_for_previous();

    const int blocks = static_cast<int>(cluster.num_blocks());
    const int per_block = (row.hidden / kVec + blocks - 1) / blocks * kVec;
    const int begin = static_cast<int>(cluster.block_rank()) * per_block;
    const Columns columns{begin + static_cast<int>(threadIdx.x) * kVec,
                          min(begin + per_block, row.hidden), static_cast<int>(blockDim.x) * kVec};
    const int64_t offset = int64_t{blockIdx.x} / blocks * row.hidden;

    if (row.addend != nullptr) add_to_prefix<kVec>(row, offset, columns);
    float weight_of_lane = 1;
    if (row.num_blocks > 0) {
        project<kVec, kMost>(row, offset, columns, of_warps);
        sum_cluster(cluster, of_warps, parts, 2 * row.num_candidates(), totals);
        weight_of_lane =
            softmax_over_depth(row, totals[2 * lane_idx()], totals[2 * lane_idx() + 1]);
    }

    float squares = 0;
    // Whole warps go round together, for the shuffles.
    const int rounds = (per_block + columns.step - 1) / columns.step;
    for (int r = 0; r < rounds; ++r) {
        const int i = columns.first + r * columns.step;
        const bool is_there = i < columns.end;
        const auto mix = mix_columns<kVec>(row, offset + (is_there ? i : begin), weight_of_lane);
        if (!is_there) continue;
        store(mixed + (i - begin), mix);
#pragma unroll
        for (int j = 0; j < kVec; ++j) squares = fmaf(mix.at[j], mix.at[j], squares);
    }
    float scale = 1;
    if (row.norm_weight != nullptr) {
        squares = sum_lanes(squares);
        if (lane_idx() == 0) norm_of_warps[warp_idx()][0] = squares;
        sum_cluster(cluster, norm_of_warps, parts_of_norm, 1, &norm_total);
        scale = 1.0f / sqrtf(norm_total / static_cast<float>(row.hidden) + row.norm_eps);
    }
    for (int i = columns.first; i < columns.end; i += columns.step) {
        auto v = load<kVec>(mixed + (i - begin));
        if (row.norm_weight != nullptr) {
            const auto weight = load<kVec>(row.norm_weight + i);
#pragma unroll
            for (int j = 0; j < kVec; ++j) v.at[j] = weight.at[j] * (v.at[j] * scale);
        }
        store_outputs(row.out, row.out_bf16, offset + i, v);
    }
}

// Half the values for twice the lanes: lanes whose bit kHalf is set go on with the upper half.
template <int kHalf>
__device__ void halve(float (&values)[kWarpSize]) {
    const bool is_upper = (lane_idx() & kHalf) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
        const float given = is_upper ? values[i] : values[i + kHalf];
        const float kept = is_upper ? values[i + kHalf] : values[i];
        values[i] = kept + __shfl_xor_sync(kAllLanes, given, kHalf);
    }
}

// Lane i gets the sum over the lanes of their values[i].
__device__ float sum_each(float (&values)[kWarpSize]) {
    halve<16>(values);
    halve<8>(values);
    halve<4>(values);
    halve<2>(values);
    halve<1>(values);
    return values[0];
}

// Adds up lane i's `mine` of all warps and blocks, for i < count; in every warp. Shorter than
// sum_cluster() by two barriers, for one sum a lane.
__device__ float sum_lanes_of_cluster(cg::cluster_group cluster, float mine, int count,
                                      float (*of_warps)[kWarpSize], float (*parts)[kWarpSize]) {
    of_warps[warp_idx()][lane_idx()] = mine;
    __syncthreads();
    const int blocks = static_cast<int>(cluster.num_blocks());
    const int self = static_cast<int>(cluster.block_rank());
    // Warp b tells block b.
    for (int b = warp_idx(); b < blocks; b += num_warps()) {
        float sum = 0;
        for (int w = 0; w < num_warps(); ++w) sum += of_warps[w][lane_idx()];
        if (lane_idx() < count) {
            cluster.map_shared_rank(parts[self], static_cast<unsigned>(b))[lane_idx()] = sum;
        }
    }
    cluster.sync();
    float sum = 0;
    if (lane_idx() < count) {
        for (int b = 0; b < blocks; ++b) sum += parts[b][lane_idx()];
    }
    return sum;
}

// A thread's columns of a row, all of them in registers.
struct HeldColumns {
    Floats<4> blocks[kMaxHeldBlocks] = {};
    Floats<4> prefix = {};
    Floats<4> mixer = {};
    Floats<4> norm_weight = {};

    // Everything is on its way before the first is there.
    __device__ HeldColumns(const MixRow& row, int64_t offset, int column) {
#pragma unroll
        for (int c = 0; c < kMaxHeldBlocks; ++c) {
            if (c < row.num_blocks) blocks[c] = load<4>(row.blocks[c] + offset + column);
        }
        prefix = load<4>(row.prefix + offset + column);
        Floats<4> addend = {};
        if (row.addend != nullptr) addend = load<4>(row.addend + offset + column);
        if (row.num_blocks > 0) mixer = load<4>(row.mixer + column);
        if (row.norm_weight != nullptr) norm_weight = load<4>(row.norm_weight + column);
        if (row.addend == nullptr) return;
#pragma unroll
        for (int j = 0; j < 4; ++j) prefix.at[j] += addend.at[j];
        store(row.prefix + offset + column, prefix);
    }
    __device__ HeldColumns() {}

    // sums[2c] and [2c + 1] = this thread's part of <candidate c, mixer> and |candidate c|^2; the
    // prefix is the last of the row's candidates.
    __device__ void project(int num_blocks, float (&sums)[kWarpSize]) const {
#pragma unroll
        for (int c = 0; c <= kMaxHeldBlocks; ++c) {
            float dot = 0, square = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float v = prefix.at[j];
                if (c < kMaxHeldBlocks && c < num_blocks) v = blocks[c].at[j];
                dot = fmaf(v, mixer.at[j], dot);
                square = fmaf(v, v, square);
            }
            sums[2 * c] = dot;
            sums[2 * c + 1] = square;
        }
    }

    __device__ Floats<4> mix(int num_blocks, float weight_of_lane) const {
        Floats<4> sum = {};
#pragma unroll
        for (int c = 0; c < kMaxHeldBlocks; ++c) {
            const float weight = __shfl_sync(kAllLanes, weight_of_lane, c);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (c < num_blocks) sum.at[j] = fmaf(weight, blocks[c].at[j], sum.at[j]);
            }
        }
        const float weight = __shfl_sync(kAllLanes, weight_of_lane, num_blocks);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum.at[j] = fmaf(weight, prefix.at[j], sum.at[j]);
        return sum;
    }
};

// The same as attn_res_mix_kernel where a thread has one vector of each candidate and there are
// few: a row is read once, and its latency is paid once.
__global__ void __launch_bounds__(kMaxWarps* kWarpSize) attn_res_held_kernel(MixRow row) {
    __shared__ float of_warps[2][kMaxWarps][kWarpSize];
    __shared__ float parts[2][kMaxCluster][kWarpSize];
    const cg::cluster_group cluster = cg::this_cluster();
    auto all_started = cluster.barrier_arrive();
    wait_for_previous();
    const int blocks = static_cast<int>(cluster.num_blocks());
    const int per_block = (row.hidden / 4 + blocks - 1) / blocks * 4;
    const int begin = static_cast<int>(cluster.block_rank()) * per_block;
    const int column = begin + static_cast<int>(threadIdx.x) * 4;
    const bool is_there = column < min(begin + per_block, row.hidden);
    const int64_t offset = int64_t{blockIdx.x} / blocks * row.hidden;
    const HeldColumns held = is_there ? HeldColumns(row, offset, column) : HeldColumns();
    cluster.barrier_wait(std::move(all_started));  // shared memory of all may be written

    float weight_of_lane = 1;
    if (row.num_blocks > 0) {
        float sums[kWarpSize] = {};
        held.project(row.num_blocks, sums);
        const float sum = sum_lanes_of_cluster(cluster, sum_each(sums), 2 * row.num_candidates(),
                                               of_warps[0], parts[0]);
        weight_of_lane = softmax_over_depth(row, __shfl_sync(kAllLanes, sum, 2 * lane_idx() % 32),
                                            __shfl_sync(kAllLanes, sum, (2 * lane_idx() + 1) % 32));
    }
    Floats<4> v = held.prefix;
    if (row.num_blocks > 0) v = held.mix(row.num_blocks, weight_of_lane);
    if (row.norm_weight != nullptr) {
        float squares = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) squares = fmaf(v.at[j], v.at[j], squares);
        float total = sum_lanes_of_cluster(cluster, sum_lanes(squares), 1, of_warps[1], parts[1]);
        total = __shfl_sync(kAllLanes, total, 0);
        const float scale = 1.0f / sqrtf(total / static_cast<float>(row.hidden) + row.norm_eps);
#pragma unroll
        for (int j = 0; j < 4; ++j) v.at[j] = held.norm_weight.at[j] * (v.at[j] * scale);
    }
    if (is_there) store_outputs(row.out, row.out_bf16, offset + column, v);
}

Status check(const AttnResMixArgs& args) {
    constexpr const char* kName = "attn_res_mix";
    const auto blocks = static_cast<int64_t>(args.blocks.size());
    K3POD_TRY(require(args.rows >= 0, kName, "rows", args.rows, "at least 0"));
    K3POD_TRY(require(args.hidden > 0 && args.hidden <= 16384, kName, "hidden", args.hidden,
                      "in [1, 16384]"));
    K3POD_TRY(
        require(blocks <= kMaxAttnResBlocks, kName, "the number of blocks", blocks, "at most 31"));
    K3POD_TRY(require_pointer(args.prefix, kName, "prefix"));
    if (blocks > 0) K3POD_TRY(require_pointer(args.mixer, kName, "mixer"));
    return Status::ok();
}

MixRow row_of(const AttnResMixArgs& args) {
    MixRow row = {};
    for (size_t i = 0; i < args.blocks.size(); ++i) row.blocks[i] = args.blocks[i];
    row.num_blocks = static_cast<int32_t>(args.blocks.size());
    row.hidden = args.hidden;
    row.prefix = args.prefix;
    row.addend = args.addend;
    row.mixer = args.mixer;
    row.eps = args.eps;
    row.norm_weight = args.norm_weight;
    row.norm_eps = args.norm_eps;
    row.out = args.out;
    row.out_bf16 = args.out_bf16;
    return row;
}

bool is_vectorized(const AttnResMixArgs& args) {
    bool all = args.hidden % 4 == 0;
    for (const float* block : args.blocks) all = all && are_rows_vectors(block, args.hidden);
    for (const void* p :
         {static_cast<const void*>(args.prefix), static_cast<const void*>(args.addend),
          static_cast<const void*>(args.mixer), static_cast<const void*>(args.norm_weight),
          static_cast<const void*>(args.out), static_cast<const void*>(args.out_bf16)}) {
        all = all && are_rows_vectors(p, args.hidden);
    }
    return all;
}

}  // namespace

Status attn_res_mix(const AttnResMixArgs& args, CudaStream stream) {
    K3POD_TRY(check(args));
    if (args.rows == 0) return Status::ok();
    const bool vectors = is_vectorized(args);
    // By the width alone, so that a row's bits do not depend on how many rows there are.
    const int cluster = args.hidden >= 2048 ? kMaxCluster : 1;
    const int vec = vectors ? 4 : 1;
    const int per_block = (args.hidden / vec + cluster - 1) / cluster * vec;
    const bool is_held =
        vectors && args.blocks.size() <= kMaxHeldBlocks && per_block / vec <= kMaxWarps * kWarpSize;
    const auto kernel = is_held                   ? attn_res_held_kernel
                        : !vectors                ? attn_res_mix_kernel<1, kMaxCandidates>
                        : args.blocks.size() < 12 ? attn_res_mix_kernel<4, 12>
                                                  : attn_res_mix_kernel<4, kMaxCandidates>;
    const LaunchShape shape{
        .grid = static_cast<unsigned>(args.rows * cluster),
        .block = block_size_for(per_block / vec, kMaxWarps * kWarpSize),
        .shared_bytes = is_held ? 0 : int64_t{per_block} * int64_t{sizeof(float)},
        .cluster = static_cast<unsigned>(cluster),
        .overlaps_previous = true};
    return launch("attn_res_mix", kernel, shape, stream, row_of(args));
}

}  // namespace k3pod::kernels

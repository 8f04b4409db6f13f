// Attention over the paged latent cache with the tensor cores of sm_90, for K3's widths. A block
// looks at the 96 heads of one token, 64 cached positions at a time, everything transposed so that
// the heads are the column side, of which 96 waste nothing:
//
//   scores^T[64, 96] = K Q^T      three groups of four warps, each with 32 of the heads
//   softmax, online               a group by itself: while one works on it, the others multiply
//   O^T[512, 96] += V^T P^T
//
// K and V are the same bytes. A fourth group brings them in boxes of 64 positions and 64 channels
// through a ring: a box is free as soon as its last product is done, so copies never stop. Long
// sequences are cut into splits whose results a second kernel merges in order.

#include "sm90/mla_attend.h"

#include <cuda.h>

#include "common/block.cuh"
#include "common/bulk_copy.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/vectors.cuh"
#include "generic/mla.cuh"
#include "sm90/wgmma.cuh"

namespace k3pod::kernels {
namespace {

constexpr int kGroups = 3;
constexpr int kGroupWarps = 4;
constexpr int kGroupThreads = kGroupWarps * kWarpSize;
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kGroupHeads = 32;
constexpr int kHeads = kGroups * kGroupHeads;
constexpr int kTokens = kWideMlaTokens;
constexpr int kRank = 512;
constexpr int kWidth = 576;
constexpr int kLatentBoxes = kRank / kOperandCols;
constexpr int kBoxes = kWidth / kOperandCols;  // of a tile; the first is the rope part
constexpr int kSlots = 13;
constexpr int kDepthSteps = kOperandCols / 16;  // products of a box of scores
constexpr int kTokenSteps = kTokens / 16;       // and of a box of output
constexpr int kCopierRegisters = 24;
constexpr int kGroupRegisters = 160;
constexpr float kLog2e = 1.4426950408889634f;

struct Work {
    int chunk;
    int64_t first_query;  // among all R * heads
    int visible;          // positions that the token sees
    int begin_tile, end_tile;
};

struct Shared {
    Bf16 q[kBoxes][kHeads][kOperandCols];
    Bf16 ring[kSlots][kTokens][kOperandCols];
    Bf16 p[kGroups][kGroupHeads][kTokens];
    float of_warps[kGroups][kGroupWarps][kGroupHeads];
    // The running softmax of a head: the maximum that all warps share, and the sum of a warp's
    // positions. Here because the products leave hardly a register.
    float largest[kGroups][kGroupWarps][kGroupHeads];
    float sum[kGroups][kGroupWarps][kGroupHeads];
    Work work;
    uint64_t full[kSlots];
    uint64_t empty[kSlots];
};

// Results of the splits. Outputs lie as the threads hold them: for split, token and group, four
// floats of every thread, 32 times.
struct Partials {
    SplitStats* stats;  // [splits, R * heads]
    float* out;         // [splits, R * heads * rank], not divided by the sum
    int64_t queries;    // R * heads
};
constexpr int kQuads = kRank * kGroupHeads / kGroupThreads / 4;  // of floats a thread holds
constexpr int64_t kGroupFloats = int64_t{kRank} * kGroupHeads;

__device__ float* partial_of(const Partials& partials, int split, int64_t first_query, int group) {
    return partials.out + (split * partials.queries + first_query) * kRank + group * kGroupFloats;
}

// False: nothing to do for this block.
__device__ bool find_work(const MlaAttendArgs& args, Work& work) {
    const int heads = args.dims.heads;
    work.chunk = static_cast<int>(blockIdx.z);
    const int query = static_cast<int>(blockIdx.x) * kHeads;
    if (query >= args.chunks.num_rows[work.chunk] * heads) return false;
    work.first_query = int64_t{args.chunks.first_row[work.chunk]} * heads + query;
    work.visible = args.chunks.positions[work.chunk] + 1 + query / heads;
    const int tiles = (work.visible + kTokens - 1) / kTokens;
    const int per_split = (tiles + args.num_splits - 1) / args.num_splits;
    work.begin_tile = min(static_cast<int>(blockIdx.y) * per_split, tiles);
    work.end_tile = min(work.begin_tile + per_split, tiles);
    return true;
}

// A place in the ring.
struct Place {
    int slot = 0;
    uint32_t round = 0;  // parity of the rounds so far
    __device__ void advance() {
        if (++slot < kSlots) return;
        slot = 0;
        round ^= 1;
    }
};

__device__ int first_channel(int box) {
    return box == 0 ? kRank : (box - 1) * kOperandCols;
}

__device__ void copy_box(Bf16* to, const CUtensorMap* pages, int channel, int row, int page,
                         uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
        "l"(pages), "r"(channel), "r"(row), "r"(page), "r"(shared_address(barrier))
        : "memory");
}

// One thread. A page is looked up a tile ahead.
__device__ void copy_tiles(const MlaAttendArgs& args, const CUtensorMap* pages, const Work& work,
                           Shared& shared) {
    const int tiles_per_page = args.cache.page_tokens / kTokens;
    const int32_t* table =
        args.chunks.page_table + int64_t{work.chunk} * args.chunks.page_stride;
    int next_page = table[work.begin_tile / tiles_per_page];
    Place place;
    for (int tile = work.begin_tile; tile < work.end_tile; ++tile) {
        const int page = next_page;
        if (tile + 1 < work.end_tile) next_page = table[(tile + 1) / tiles_per_page];
        for (int box = 0; box < kBoxes; ++box) {
            barrier_wait(&shared.empty[place.slot], place.round ^ 1);
            barrier_expect(&shared.full[place.slot], sizeof(shared.ring[0]));
            copy_box(&shared.ring[place.slot][0][0], pages, first_channel(box),
                     tile % tiles_per_page * kTokens, page, &shared.full[place.slot]);
            place.advance();
        }
    }
}

// What a thread of a group knows about itself: computed anew wherever it is asked, so that it takes
// no registers in between.
__device__ int thread_now() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}
struct Lane {
    int group, warp, g, t;
    int own_column;  // the head whose running softmax it keeps, as one lane of every warp does
    __device__ Lane() {
        const int thread = thread_now();
        group = thread / kGroupThreads;
        warp = thread / kWarpSize % kGroupWarps;
        g = thread % kWarpSize / 4;
        t = thread % 4;
        own_column = g / 2 * 8 + t * 2 + g % 2;
    }
    __device__ void sync() const { sync_threads_of(1 + group, kGroupThreads); }
};

// The lane that owns column 8j + 2t + e.
__device__ int owner_of(int j, int e, int t) {
    return j * 8 + e * 4 + t;
}

// Combines values[2j + e] of the eight lanes with equal t; the owner of a column gets its result.
template <class Combine>
__device__ float reduce_columns(const float (&values)[8], Combine combine) {
    const int lane = lane_idx();
    float four[4], two[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float given = lane & 16 ? values[i] : values[i + 4];
        const float kept = lane & 16 ? values[i + 4] : values[i];
        four[i] = combine(kept, __shfl_xor_sync(kAllLanes, given, 16));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float given = lane & 8 ? four[i] : four[i + 2];
        const float kept = lane & 8 ? four[i + 2] : four[i];
        two[i] = combine(kept, __shfl_xor_sync(kAllLanes, given, 8));
    }
    const float given = lane & 4 ? two[0] : two[1];
    const float kept = lane & 4 ? two[1] : two[0];
    return combine(kept, __shfl_xor_sync(kAllLanes, given, 4));
}

// The group's 32 queries, each row's eighths where products look for them.
__device__ void load_queries(const MlaAttendArgs& args, const Work& work, const Lane& lane,
                             Shared& shared) {
    constexpr int kPieces = kWidth / 8;
    const Bf16* from = args.latent_q + (work.first_query + lane.group * kGroupHeads) * kWidth;
    for (int i = static_cast<int>(threadIdx.x) % kGroupThreads; i < kGroupHeads * kPieces;
         i += kGroupThreads) {
        const int row = i / kPieces;
        const int piece = i % kPieces;
        const int box = piece < kLatentBoxes * 8 ? piece / 8 + 1 : 0;
        Bf16* to = shared.q[box][lane.group * kGroupHeads + row] + (piece % 8 ^ row % 8) * 8;
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + i * 8);
    }
    publish_to_products();
    lane.sync();
}

// scores^T of a tile; leaves the rope box to the copier and `place` at the first latent box.
__device__ void score_tile(const Lane& lane, Shared& shared, Place& place, float (&scores)[16]) {
    const uint32_t queries = operand_at(shared.q[0][lane.group * kGroupHeads]);
    Place at = place;
    begin_products();
#pragma unroll 1
    for (int box = 0; box < kBoxes; ++box) {
        barrier_wait(&shared.full[at.slot], at.round);
        const uint32_t keys = operand_at(shared.ring[at.slot]);
#pragma unroll
        for (int k = 0; k < kDepthSteps; ++k) {
            const auto q = queries + box * static_cast<uint32_t>(sizeof(shared.q[0]) / 16) + k * 2;
            multiply_async<false>(scores, keys + k * 2, q, box + k > 0);
        }
        at.advance();
    }
    commit_products();
    wait_for_products<0>();
    if (lane_idx() == 0) barrier_arrive(&shared.empty[place.slot]);
    place.advance();
}

// Positions behind the last are whatever the page holds, NaN too, and 0 * NaN is no 0.
__device__ void clear_rows(Shared& shared, Place place, int first) {
    for (int box = 0; box < kLatentBoxes; ++box) {
        uint4* rows = reinterpret_cast<uint4*>(shared.ring[place.slot][first]);
        for (int i = static_cast<int>(threadIdx.x) % kGroupThreads; i < (kTokens - first) * 8;
             i += kGroupThreads) {
            rows[i] = {0, 0, 0, 0};
        }
        place.advance();
    }
}

__device__ float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Four 8x8 matrices, each to eight rows of 16 bytes, transposed; lane i has the address of row
// i % 8 of matrix i / 8.
__device__ void store_transposed(Bf16* row, const uint32_t (&r)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
            shared_address(row)),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

// The group's part of the output and the running softmax of the lane's own column: the maximum is
// that of all warps, the sum that of the warp's positions.
struct Running {
    float out[kLatentBoxes][16] = {};
    float largest = -INFINITY;
    float sum = 0;

    __device__ void scale(float factor_of_own, int t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float even = __shfl_sync(kAllLanes, factor_of_own, owner_of(j, 0, t));
            const float odd = __shfl_sync(kAllLanes, factor_of_own, owner_of(j, 1, t));
#pragma unroll
            for (auto& box : out) {
                box[4 * j] *= even;
                box[4 * j + 1] *= odd;
                box[4 * j + 2] *= even;
                box[4 * j + 3] *= odd;
            }
        }
    }
};

// The new maximum of the own column, with -inf (no position seen yet) as 0.
__device__ float raise_maximum(const Lane& lane, const float (&scores)[16], Shared& shared,
                               Running& running) {
    float best[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        best[i] = fmaxf(scores[i / 2 * 4 + i % 2], scores[i / 2 * 4 + i % 2 + 2]);
    }
    float(*of_warps)[kGroupHeads] = shared.of_warps[lane.group];
    of_warps[lane.warp][lane.own_column] =
        reduce_columns(best, [](float a, float b) { return fmaxf(a, b); });
    lane.sync();
    float largest = running.largest;
#pragma unroll
    for (int w = 0; w < kGroupWarps; ++w) largest = fmaxf(largest, of_warps[w][lane.own_column]);
    const float reference = largest > -INFINITY ? largest : 0.0f;
    const float factor = exp2f(running.largest - reference);
    running.largest = largest;
    running.sum *= factor;
    if (__any_sync(kAllLanes, factor != 1.0f)) running.scale(factor, lane.t);
    return reference;
}

// Turns scores into probabilities relative to the maximum, in bf16, which are also what is summed.
// `left` positions of the tile are visible.
__device__ void softmax_tile(const Lane& lane, int left, float (&scores)[16], Shared& shared,
                             Running& running) {
    const int first = lane.warp * 16 + lane.g;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const bool is_visible = first + i / 2 % 2 * 8 < left;
        scores[i] = is_visible ? scores[i] * kLog2e : -INFINITY;
    }
    const float reference = raise_maximum(lane, scores, shared, running);
    float sums[8];
    const int row = lane_idx() % 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        uint32_t packed[4];  // (column block 2i, upper rows), (2i, lower), (2i + 1, upper), ...
#pragma unroll
        for (int j = 2 * i; j < 2 * i + 2; ++j) {
            const float* s = scores + 4 * j;
            const float even = __shfl_sync(kAllLanes, reference, owner_of(j, 0, lane.t));
            const float odd = __shfl_sync(kAllLanes, reference, owner_of(j, 1, lane.t));
            const uint32_t upper =
                pack_bf16x2(exp2_approximate(s[0] - even), exp2_approximate(s[1] - odd));
            const uint32_t lower =
                pack_bf16x2(exp2_approximate(s[2] - even), exp2_approximate(s[3] - odd));
            packed[j % 2 * 2] = upper;
            packed[j % 2 * 2 + 1] = lower;
            sums[2 * j] = __uint_as_float(upper << 16) + __uint_as_float(lower << 16);
            sums[2 * j + 1] =
                __uint_as_float(upper & 0xffff0000u) + __uint_as_float(lower & 0xffff0000u);
        }
        const int head = (2 * i + lane_idx() / 16) * 8 + row;
        const int eighth = (lane.warp * 2 + lane_idx() / 8 % 2) ^ row;
        store_transposed(shared.p[lane.group][head] + eighth * 8, packed);
    }
    running.sum += reduce_columns(sums, [](float a, float b) { return a + b; });
}

template <int kBox>
__device__ void release_boxes(Shared& shared, Place& place) {
    if constexpr (kBox < kLatentBoxes) {
        wait_for_products<kLatentBoxes - 1 - kBox>();
        if (lane_idx() == 0) barrier_arrive(&shared.empty[place.slot]);
        place.advance();
        release_boxes<kBox + 1>(shared, place);
    }
}

// O^T += V^T P^T, and the boxes back to the copier.
__device__ void add_values(const Lane& lane, Shared& shared, Place& place, Running& running) {
    const uint32_t p = operand_at(shared.p[lane.group]);
    Place at = place;
    begin_products();
#pragma unroll
    for (int box = 0; box < kLatentBoxes; ++box) {
        const uint32_t values = operand_at(shared.ring[at.slot]);
#pragma unroll
        for (int k = 0; k < kTokenSteps; ++k) {
            multiply_async<true>(running.out[box], values + k * (2 * kAtomBytes / 16), p + k * 2,
                                 true);
        }
        commit_products();
        at.advance();
    }
    release_boxes<0>(shared, place);
}

__device__ void write_partial(const Lane& lane, const Work& work, const Running& running,
                              float sum, const Partials& partials) {
    const int split = static_cast<int>(blockIdx.y);
    if (lane.warp == 0) {
        const int64_t query = work.first_query + lane.group * kGroupHeads + lane.own_column;
        partials.stats[split * partials.queries + query] = {running.largest, sum};
    }
    if (work.begin_tile == work.end_tile) return;
    float* to = partial_of(partials, split, work.first_query, lane.group) +
                threadIdx.x % kGroupThreads * 4;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
        const float* v = running.out[i / 4] + i % 4 * 4;
        store<4>(to + i * kGroupThreads * 4, {v[0], v[1], v[2], v[3]});
    }
}

__device__ void write_output(const Lane& lane, const Work& work, const Running& running,
                             float* latent_out) {
    float* to = latent_out + (work.first_query + lane.group * kGroupHeads + lane.t * 2) * kRank +
                lane.warp * 16 + lane.g;
#pragma unroll
    for (int box = 0; box < kLatentBoxes; ++box) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            to[(i / 4 * 8 + i % 2) * kRank + box * kOperandCols + i / 2 % 2 * 8] =
                running.out[box][i];
        }
    }
}

__device__ void attend(const MlaAttendArgs& args, const Work& work, const Partials& partials,
                       Shared& shared) {
    const Lane lane;
    load_queries(args, work, lane, shared);
    Running running;
    Place place;
    for (int tile = work.begin_tile; tile < work.end_tile; ++tile) {
        float scores[16];
        score_tile(lane, shared, place, scores);
        const int left = work.visible - tile * kTokens;
        softmax_tile(lane, left, scores, shared, running);
        if (left < kTokens) clear_rows(shared, place, left);
        publish_to_products();
        lane.sync();
        add_values(lane, shared, place, running);
    }
    float(*of_warps)[kGroupHeads] = shared.of_warps[lane.group];
    lane.sync();
    of_warps[lane.warp][lane.own_column] = running.sum;
    lane.sync();
    const float sum = (of_warps[0][lane.own_column] + of_warps[1][lane.own_column]) +
                      (of_warps[2][lane.own_column] + of_warps[3][lane.own_column]);
    if (args.num_splits > 1) return write_partial(lane, work, running, sum, partials);
    running.scale(1.0f / sum, lane.t);
    write_output(lane, work, running, args.latent_out);
}

__global__ void __launch_bounds__(kThreads, 1)
    wide_attend_kernel(MlaAttendArgs args, Partials partials,
                       const __grid_constant__ CUtensorMap pages) {
    extern __shared__ __align__(kAtomBytes) std::byte memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kSlots; ++i) {
            barrier_init(&shared.full[i], 1);
            barrier_init(&shared.empty[i], kGroups * kGroupWarps);
        }
        barrier_init_fence();
    }
    wait_for_previous();
    __syncthreads();
    Work work;
    if (!find_work(args, work)) return;
    if (threadIdx.x >= kGroups * kGroupThreads) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopierRegisters));
        if (threadIdx.x == kGroups * kGroupThreads && work.begin_tile < work.end_tile) {
            copy_tiles(args, &pages, work, shared);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kGroupRegisters));
        attend(args, work, partials, shared);
    }
}

constexpr int kMergeParts = 4;  // of the splits, added up in order
constexpr int kMergeThreads = kMergeParts * kGroupThreads;
constexpr int kMergeHeads = 8;  // that a block's floats belong to

// weights[s][h]: what split s counts for the head, 0 for a split without positions.
__device__ void weigh_splits(const Partials& partials, int num_splits, int64_t first_query,
                             float (*weights)[kMergeHeads]) {
    const int head = warp_idx();
    if (head < kMergeHeads) {
        const SplitStats* stats = partials.stats + first_query + head;
        float largest = -INFINITY;
        for (int s = lane_idx(); s < num_splits; s += kWarpSize) {
            largest = fmaxf(largest, stats[s * partials.queries].largest);
        }
        largest = max_lanes(largest);
        float sum = 0;
        for (int s = lane_idx(); s < num_splits; s += kWarpSize) {
            const SplitStats of_split = stats[s * partials.queries];
            const float weight = of_split.sum > 0 ? exp2f(of_split.largest - largest) : 0.0f;
            weights[s][head] = weight;
            sum = fmaf(weight, of_split.sum, sum);
        }
        const float scale = 1.0f / sum_lanes(sum);
        for (int s = lane_idx(); s < num_splits; s += kWarpSize) weights[s][head] *= scale;
    }
    __syncthreads();
}

// A block: one quad of every thread of a group, that is 8 heads and 64 channels.
__global__ void __launch_bounds__(kMergeThreads)
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
    const int64_t first_query = token_query + group * kGroupHeads + quad % 4 * kMergeHeads;
    weigh_splits(partials, args.num_splits, first_query, weights);

    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    const int part = static_cast<int>(threadIdx.x) / kGroupThreads;
    const int per_part = (args.num_splits + kMergeParts - 1) / kMergeParts;
    const int end = min((part + 1) * per_part, args.num_splits);
    const int t = thread % 4;
    Floats<4> sum = {};
#pragma unroll 12
    for (int s = part * per_part; s < end; ++s) {
        const float even = weights[s][2 * t], odd = weights[s][2 * t + 1];
        if (even == 0.0f && odd == 0.0f) continue;
        const auto v = load<4>(partial_of(partials, s, token_query, group) +
                               (quad * kGroupThreads + thread) * 4);
        sum.at[0] = fmaf(even, v.at[0], sum.at[0]);
        sum.at[1] = fmaf(odd, v.at[1], sum.at[1]);
        sum.at[2] = fmaf(even, v.at[2], sum.at[2]);
        sum.at[3] = fmaf(odd, v.at[3], sum.at[3]);
    }
    sums[part][thread] = sum;
    __syncthreads();
    const int i = part;  // of the quad's floats
    float total = 0;
#pragma unroll
    for (int p = 0; p < kMergeParts; ++p) total += sums[p][thread].at[i];
    const int channel = quad / 4 * kOperandCols + thread / kWarpSize * 16 + lane_idx() / 4;
    args.latent_out[(first_query + 2 * t + i % 2) * kRank + channel + i / 2 * 8] = total;
}

// How the copy engine sees the pages: [page, token, channel] in boxes of 64 tokens, 64 channels.
Result<CUtensorMap> map_pages(const MlaCache& cache) {
    static const auto encode = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult found = {};
        const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                            12000, cudaEnableDefault, &found);
        const bool is_there = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(is_there ? function : nullptr);
    }();
    constexpr cuuint64_t kManyPages = uint64_t{1} << 30;
    const cuuint64_t sizes[] = {kWidth, static_cast<cuuint64_t>(cache.page_tokens), kManyPages};
    const cuuint64_t strides[] = {kWidth * sizeof(Bf16),
                                  static_cast<cuuint64_t>(cache.page_stride) * sizeof(Bf16)};
    const cuuint32_t box[] = {kOperandCols, kTokens, 1};
    const cuuint32_t steps[] = {1, 1, 1};
    CUtensorMap map = {};
    const CUresult result =
        encode == nullptr
            ? CUDA_ERROR_NOT_FOUND
            : encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, cache.pages, sizes, strides, box,
                     steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    K3POD_TRY(require(result == CUDA_SUCCESS, "mla_attend", "cuTensorMapEncodeTiled's result",
                      static_cast<int64_t>(result), "0: a driver for CUDA 12 or newer"));
    return map;
}

}  // namespace

bool is_wide_mla(const MlaDims& dims) {
    return dims.heads % kHeads == 0 && dims.rank == kRank && dims.cache_width() == kWidth;
}

Status wide_mla_attend(const MlaAttendArgs& args, CudaStream stream) {
    Partials partials = {};
    partials.queries = int64_t{args.rows} * args.dims.heads;
    if (args.num_splits > 1) {
        partials.stats = reinterpret_cast<SplitStats*>(args.workspace);
        partials.out = reinterpret_cast<float*>(
            args.workspace + mla_stats_bytes(args.dims, args.rows, args.num_splits));
    }
    K3POD_ASSIGN(const CUtensorMap pages, map_pages(args.cache));
    const auto tokens = static_cast<unsigned>(args.chunks.max_rows * (args.dims.heads / kHeads));
    const auto chunks = static_cast<unsigned>(args.chunks.num_chunks);
    K3POD_TRY(allow_shared("mla_attend", wide_attend_kernel, sizeof(Shared)));
    K3POD_TRY(launch("mla_attend", wide_attend_kernel,
                     {.grid = dim3(tokens, static_cast<unsigned>(args.num_splits), chunks),
                      .block = kThreads,
                      .shared_bytes = sizeof(Shared),
                      .overlaps_previous = true},
                     stream, args, partials, pages));
    if (args.num_splits == 1) return Status::ok();
    return launch("mla_merge", wide_merge_kernel,
                  {.grid = dim3(kGroups * kQuads, tokens, chunks),
                   .block = kMergeThreads,
                   .overlaps_previous = true},
                  stream, args, partials);
}

}  // namespace k3pod::kernels

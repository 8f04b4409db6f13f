// Attention over the paged latent cache on the tensor cores. A query row is a head of a token;
// 32 of them share a block, which walks over 32 cached positions at a time:
//
//   scores[32, 32] = Q K^T       warps split the 576 channels in 4 and the positions in 2; each
//                                keeps its part of Q in registers, the 4 parts are added up
//   softmax, online              8 threads a query row
//   O[32, 512] += P V            warps split the 512 channels in 8
//
// Positions come by asynchronous copies, some tiles ahead. Long sequences are cut into splits whose
// results a second kernel merges in order.

#include "common/async_copy.cuh"
#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/vectors.cuh"
#include "generic/mla.cuh"
#include "sm90/mla_wide.h"

namespace k3pod::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kQueries = 32;
constexpr int kTokens = 32;
constexpr int kDepthParts = 4;  // of the channels, for the scores
constexpr int kDepth = 16;      // channels of one tensor core product
constexpr int kMaxSteps = kMaxMlaWidth / kDepth / kDepthParts;  // products of a depth part
constexpr int kWarpCols = kMaxMlaRank / kWarps;                 // of the output
constexpr int kPad = 8;  // elements behind a row, so that 8 rows lie in different banks
constexpr int kMinStages = 2;
constexpr int kMaxStages = 4;
constexpr float kLog2e = 1.4426950408889634f;

struct Softmax {
    float scores[kDepthParts][kQueries][kTokens + kPad];
    Bf16 p[kQueries][kTokens + kPad];
    float factors[kQueries];  // what brings earlier sums to the new maximum; at the end 1 / sum
};

struct Partials {
    SplitStats* stats;  // [splits, R * heads]
    float* out;         // [splits, R * heads, rank], not divided by the sum
};

// Four 8x8 matrices of bf16; lane i gives the address of row i % 8 of matrix i / 8.
__device__ void load_matrices(uint32_t (&r)[4], const Bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
__device__ void load_matrices_transposed(uint32_t (&r)[4], const Bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}

// The block's queries and the positions it looks at.
struct Work {
    int chunk;
    int64_t first_query;  // among all R * heads
    int count;            // query rows, at most kQueries
    int first_visible;    // positions that a query row r sees: first_visible + r_in_chunk / heads
    int query_in_chunk;
    int end;                   // positions that any row sees
    int begin_tile, end_tile;  // of kTokens positions
};

// False: nothing to do for this block.
__device__ bool find_work(const MlaAttendArgs& args, Work& work) {
    const int heads = args.dims.heads;
    work.chunk = static_cast<int>(blockIdx.z);
    work.query_in_chunk = static_cast<int>(blockIdx.x) * kQueries;
    const int queries = args.chunks.num_rows[work.chunk] * heads;
    if (work.query_in_chunk >= queries) return false;
    work.first_query = int64_t{args.chunks.first_row[work.chunk]} * heads + work.query_in_chunk;
    work.count = min(kQueries, queries - work.query_in_chunk);
    work.first_visible = args.chunks.positions[work.chunk] + 1;
    work.end = work.first_visible + (work.query_in_chunk + work.count - 1) / heads;
    const int tiles = (work.end + kTokens - 1) / kTokens;
    const int per_split = (tiles + args.num_splits - 1) / args.num_splits;
    work.begin_tile = min(static_cast<int>(blockIdx.y) * per_split, tiles);
    work.end_tile = min(work.begin_tile + per_split, tiles);
    return true;
}

// Starts copying a tile; positions past the end become zeros, whatever lies there.
__device__ void fetch_tile(const MlaAttendArgs& args, const Work& work, int tile, Bf16* to) {
    const int width = args.dims.cache_width();
    for (int i = warp_idx(); i < kTokens; i += kWarps) {
        const int position = tile * kTokens + i;
        const bool is_there = position < work.end;
        const Bf16* row = args.cache.pages;
        if (is_there)
            row += cache_row_offset(args.dims, args.cache, args.chunks, work.chunk, position);
        for (int c = lane_idx() * 8; c < width; c += kWarpSize * 8) {
            copy_async(to + i * (width + kPad) + c, row + c, is_there);
        }
    }
}

// A warp's part of Q, as the tensor cores take it: two tiles of 16 rows, up to kMaxSteps products.
struct QueryPart {
    uint32_t a[2][kMaxSteps][4];
    int first_step;
    int num_steps;
};

__device__ void load_queries(const MlaAttendArgs& args, const Work& work, QueryPart& part) {
    const int width = args.dims.cache_width();
    const int steps = width / kDepth;
    const int per_part = (steps + kDepthParts - 1) / kDepthParts;
    part.first_step = warp_idx() % kDepthParts * per_part;
    part.num_steps = max(0, min(per_part, steps - part.first_step));
    const int group = lane_idx() / 4;
    const Bf16* q = args.latent_q + work.first_query * width;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int s = 0; s < kMaxSteps; ++s) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = m * 16 + group + i % 2 * 8;
                const int col = (part.first_step + s) * kDepth + lane_idx() % 4 * 2 + i / 2 * 8;
                const bool is_there = s < part.num_steps && row < work.count;
                part.a[m][s][i] =
                    is_there ? *reinterpret_cast<const uint32_t*>(q + int64_t{row} * width + col)
                             : 0u;
            }
        }
    }
}

// This warp's depth part of the scores of 16 positions.
__device__ void score_tile(const QueryPart& part, const Bf16* tile, int row_stride,
                           Softmax& softmax) {
    const int depth_part = warp_idx() % kDepthParts;
    const int first_token = warp_idx() / kDepthParts * 16;
    const int lane = lane_idx();
    const Bf16* row = tile + (first_token + lane % 8 + lane / 16 * 8) * row_stride +
                      part.first_step * kDepth + lane / 8 % 2 * 8;
    float acc[2][2][4] = {};
#pragma unroll
    for (int s = 0; s < kMaxSteps; ++s) {
        if (s >= part.num_steps) break;
        uint32_t b[4];
        load_matrices(b, row + s * kDepth);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            mma_16x8x16(acc[m][0], part.a[m][s], {b[0], b[1]});
            mma_16x8x16(acc[m][1], part.a[m][s], {b[2], b[3]});
        }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const int q = m * 16 + lane / 4;
            const int token = first_token + n * 8 + lane % 4 * 2;
            float(*scores)[kTokens + kPad] = softmax.scores[depth_part];
            *reinterpret_cast<float2*>(&scores[q][token]) = {acc[m][n][0], acc[m][n][1]};
            *reinterpret_cast<float2*>(&scores[q + 8][token]) = {acc[m][n][2], acc[m][n][3]};
        }
    }
}

// The running softmax of one query row, the same in the 8 threads that share it.
struct RowState {
    int visible;  // positions that the row sees
    float largest = -INFINITY;
    float sum = 0;
};

// Turns the scores of a tile into probabilities relative to the new maximum, in bf16, which are
// also what is summed. True when sums so far must be scaled.
__device__ bool softmax_tile(int tile, RowState& state, Softmax& softmax) {
    const int q = static_cast<int>(threadIdx.x) / 8;
    const int first = static_cast<int>(threadIdx.x) % 8 * 4;
    Floats<4> s = load<4>(&softmax.scores[0][q][first]);
#pragma unroll
    for (int d = 1; d < kDepthParts; ++d) {
        const auto more = load<4>(&softmax.scores[d][q][first]);
#pragma unroll
        for (int i = 0; i < 4; ++i) s.at[i] += more.at[i];
    }
    float best = -INFINITY;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        s.at[i] = tile * kTokens + first + i < state.visible ? s.at[i] * kLog2e : -INFINITY;
        best = fmaxf(best, s.at[i]);
    }
    const float before = state.largest;
    state.largest = fmaxf(before, max_lanes<8>(best));
    const bool sees_any = state.largest > -INFINITY;
    Bf16s<4> p;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        p.at[i] = round_to_bf16(sees_any ? exp2f(s.at[i] - state.largest) : 0.0f);
        sum += widen(p.at[i]);
    }
    const float factor = sees_any ? exp2f(before - state.largest) : 1.0f;
    state.sum = state.sum * factor + sum_lanes<8>(sum);
    *reinterpret_cast<Bf16s<4>*>(&softmax.p[q][first]) = p;
    if (first == 0) softmax.factors[q] = factor;
    return factor != 1.0f;
}

// A warp's columns of the output: two tiles of 16 query rows, kWarpCols columns.
struct OutputPart {
    float acc[2][kWarpCols / 8][4];

    // Row r times factors[r].
    __device__ void scale(const float* factors) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            const float upper = factors[m * 16 + lane_idx() / 4];
            const float lower = factors[m * 16 + lane_idx() / 4 + 8];
#pragma unroll
            for (auto& c : acc[m]) {
                c[0] *= upper;
                c[1] *= upper;
                c[2] *= lower;
                c[3] *= lower;
            }
        }
    }
};

__device__ void add_values(const Softmax& softmax, const Bf16* tile, int row_stride, int rank,
                           OutputPart& out) {
    const int lane = lane_idx();
    const int first_col = warp_idx() * kWarpCols;
#pragma unroll
    for (int k = 0; k < kTokens; k += 16) {
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            load_matrices(a[m], &softmax.p[m * 16 + lane % 16][k + lane / 16 * 8]);
        }
        const Bf16* row = tile + (k + lane % 16) * row_stride + first_col + lane / 16 * 8;
#pragma unroll
        for (int n = 0; n < kWarpCols; n += 16) {
            if (first_col + n >= rank) break;
            uint32_t b[4];
            load_matrices_transposed(b, row + n);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                mma_16x8x16(out.acc[m][n / 8], a[m], {b[0], b[1]});
                mma_16x8x16(out.acc[m][n / 8 + 1], a[m], {b[2], b[3]});
            }
        }
    }
}

// out[r] = row r of this warp's columns, for the rows that there are.
__device__ void write_output(const OutputPart& part, int count, int rank, float* out) {
    const int lane = lane_idx();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < kWarpCols / 8; ++n) {
            const int col = warp_idx() * kWarpCols + n * 8 + lane % 4 * 2;
            if (col >= rank) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = m * 16 + lane / 4 + half * 8;
                if (row >= count) continue;
                const float* c = part.acc[m][n] + 2 * half;
                *reinterpret_cast<float2*>(out + int64_t{row} * rank + col) = {c[0], c[1]};
            }
        }
    }
}

__device__ void finish(const MlaAttendArgs& args, const Work& work, const RowState& state,
                       const Partials& partials, Softmax& softmax, OutputPart& out) {
    const int q = static_cast<int>(threadIdx.x) / 8;
    const bool leads_row = threadIdx.x % 8 == 0 && q < work.count;
    const int rank = args.dims.rank;
    if (args.num_splits == 1) {
        __syncthreads();
        if (leads_row) softmax.factors[q] = 1.0f / state.sum;
        __syncthreads();
        out.scale(softmax.factors);
        return write_output(out, work.count, rank, args.latent_out + work.first_query * rank);
    }
    const int64_t first = int64_t{blockIdx.y} * args.rows * args.dims.heads + work.first_query;
    if (leads_row) partials.stats[first + q] = {state.largest, state.sum};
    if (work.begin_tile < work.end_tile) {
        write_output(out, work.count, rank, partials.out + first * rank);
    }
}

__global__ void __launch_bounds__(kThreads, 1)
    attend_kernel(MlaAttendArgs args, Partials partials, int num_stages) {
    extern __shared__ __align__(16) std::byte shared[];
    auto& softmax = *reinterpret_cast<Softmax*>(shared);
    Bf16* stages = reinterpret_cast<Bf16*>(shared + sizeof(Softmax));
    wait_for_previous();
    Work work;
    if (!find_work(args, work)) return;
    const int row_stride = args.dims.cache_width() + kPad;
    const auto stage = [&](int tile) {
        return stages + (tile - work.begin_tile) % num_stages * kTokens * row_stride;
    };
    for (int i = 0; i < num_stages - 1; ++i) {
        const int tile = work.begin_tile + i;
        if (tile < work.end_tile) fetch_tile(args, work, tile, stage(tile));
        commit_copies();
    }
    QueryPart queries;
    load_queries(args, work, queries);
    OutputPart out = {};
    const int q = static_cast<int>(threadIdx.x) / 8;
    RowState state;
    state.visible =
        q < work.count ? work.first_visible + (work.query_in_chunk + q) / args.dims.heads : 0;

    for (int tile = work.begin_tile; tile < work.end_tile; ++tile) {
        if (num_stages == kMinStages) {
            wait_for_copies<0>();
        } else if (num_stages == kMinStages + 1) {
            wait_for_copies<1>();
        } else {
            wait_for_copies<2>();
        }
        __syncthreads();  // the tile is there, and the stage of the last one is free
        const int ahead = tile + num_stages - 1;
        if (ahead < work.end_tile) fetch_tile(args, work, ahead, stage(ahead));
        commit_copies();
        score_tile(queries, stage(tile), row_stride, softmax);
        __syncthreads();
        if (__syncthreads_or(softmax_tile(tile, state, softmax))) out.scale(softmax.factors);
        add_values(softmax, stage(tile), row_stride, args.dims.rank, out);
    }
    finish(args, work, state, partials, softmax, out);
}

// One block a query row: out = sum over the splits of 2^(largest_s - largest) * out_s, over the
// same of the sums.
__global__ void __launch_bounds__(kMaxMlaRank / 4)
    merge_kernel(MlaAttendArgs args, Partials partials) {
    __shared__ float weights[kMaxMlaSplits];
    wait_for_previous();
    const int chunk = static_cast<int>(blockIdx.y);
    const int in_chunk = static_cast<int>(blockIdx.x);
    if (in_chunk >= args.chunks.num_rows[chunk] * args.dims.heads) return;
    const int64_t query = int64_t{args.chunks.first_row[chunk]} * args.dims.heads + in_chunk;
    const int64_t queries = int64_t{args.rows} * args.dims.heads;
    float largest = -INFINITY;
    for (int s = lane_idx(); s < args.num_splits; s += kWarpSize) {
        largest = fmaxf(largest, partials.stats[s * queries + query].largest);
    }
    largest = max_lanes(largest);
    float sum = 0;
    for (int s = lane_idx(); s < args.num_splits; s += kWarpSize) {
        const SplitStats stats = partials.stats[s * queries + query];
        const float weight = exp2f(stats.largest - largest);
        sum = fmaf(weight, stats.sum, sum);
        if (warp_idx() == 0) weights[s] = stats.sum > 0 ? weight : 0.0f;
    }
    sum = sum_lanes(sum);
    __syncthreads();
    const int col = static_cast<int>(threadIdx.x) * 4;
    if (col >= args.dims.rank) return;
    Floats<4> total = {};
#pragma unroll 8
    for (int s = 0; s < args.num_splits; ++s) {
        if (weights[s] == 0.0f) continue;  // an empty split has written nothing
        const auto part = load<4>(partials.out + (s * queries + query) * args.dims.rank + col);
#pragma unroll
        for (int i = 0; i < 4; ++i) total.at[i] = fmaf(weights[s], part.at[i], total.at[i]);
    }
    const float scale = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < 4; ++i) total.at[i] *= scale;
    store(args.latent_out + query * args.dims.rank + col, total);
}

int device_attribute(cudaDeviceAttr attribute) {
    int device = 0;
    int value = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    if (cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) return 0;
    return value;
}

Status check(const MlaAttendArgs& args) {
    constexpr const char* kName = "mla_attend";
    K3POD_TRY(check_mla(kName, args.dims, args.chunks));
    K3POD_TRY(check_mla_cache(kName, args.dims, args.cache));
    K3POD_TRY(require(args.num_splits >= 1 && args.num_splits <= kMaxMlaSplits, kName, "num_splits",
                      args.num_splits, "in [1, 256]"));
    if (args.num_splits > 1) K3POD_TRY(require_pointer(args.workspace, kName, "workspace"));
    return Status::ok();
}

Status launch_merge(const MlaAttendArgs& args, const Partials& partials, CudaStream stream) {
    const LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(args.chunks.max_rows * args.dims.heads),
                     static_cast<unsigned>(args.chunks.num_chunks)),
        .block = kMaxMlaRank / 4,
        .overlaps_previous = true};
    return launch("mla_merge", merge_kernel, shape, stream, args, partials);
}

// Whether sm90/ has a kernel for these dims and this device is its GPU.
bool is_wide(const MlaDims& dims) {
#ifdef K3POD_KERNELS_SM90
    return is_wide_mla(dims) && device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
           device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
#else
    static_cast<void>(dims);
    return false;
#endif
}

}  // namespace

int32_t mla_num_splits(const MlaDims& dims, const StepChunks& chunks, int32_t max_context) {
    // Query rows and positions of a block's tile.
    const int64_t queries = is_wide(dims) ? kWideMlaHeads : kQueries;
    const int64_t tokens = is_wide(dims) ? kWideMlaTokens : kTokens;
    const int64_t blocks =
        int64_t{blocks_for(int64_t{chunks.max_rows} * dims.heads, queries)} * chunks.num_chunks;
    const int64_t tiles = blocks_for(max_context, tokens);
    const int64_t num_sms = device_attribute(cudaDevAttrMultiProcessorCount);
    if (blocks == 0 || tiles == 0 || num_sms == 0) return 1;
    // What a block costs besides its tiles, in tiles: start, and writing its result.
    constexpr int64_t kOverheadTiles = 3;
    int32_t best = 1;
    int64_t least = INT64_MAX;
    for (int32_t splits = 1; splits <= kMaxMlaSplits && splits <= tiles; ++splits) {
        const int64_t waves = (blocks * splits + num_sms - 1) / num_sms;
        const int64_t cost = waves * (blocks_for(tiles, splits) + kOverheadTiles);
        if (cost >= least) continue;
        least = cost;
        best = splits;
    }
    return best;
}

int64_t mla_workspace_bytes(const MlaDims& dims, int32_t rows, int32_t num_splits) {
    if (num_splits <= 1) return 0;
    const int64_t floats = int64_t{num_splits} * rows * dims.heads * dims.rank;
    return mla_stats_bytes(dims, rows, num_splits) + floats * static_cast<int64_t>(sizeof(float));
}

Status mla_attend(const MlaAttendArgs& args, CudaStream stream) {
    K3POD_TRY(check(args));
    if (args.chunks.num_chunks == 0) return Status::ok();
#ifdef K3POD_KERNELS_SM90
    if (is_wide(args.dims) && args.cache.page_tokens % kWideMlaTokens == 0) {
        return wide_mla_attend(args, stream);
    }
#endif
    Partials partials = {};
    if (args.num_splits > 1) {
        partials.stats = reinterpret_cast<SplitStats*>(args.workspace);
        partials.out = reinterpret_cast<float*>(
            args.workspace + mla_stats_bytes(args.dims, args.rows, args.num_splits));
    }
    const int64_t stage_bytes =
        int64_t{kTokens} * (args.dims.cache_width() + kPad) * int64_t{sizeof(Bf16)};
    const int64_t room = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) -
                         static_cast<int64_t>(sizeof(Softmax));
    const int64_t stages = max(int64_t{kMinStages}, min(int64_t{kMaxStages}, room / stage_bytes));
    const LaunchShape shape{
        .grid = dim3(blocks_for(int64_t{args.chunks.max_rows} * args.dims.heads, kQueries),
                     static_cast<unsigned>(args.num_splits),
                     static_cast<unsigned>(args.chunks.num_chunks)),
        .block = kThreads,
        .shared_bytes = static_cast<int64_t>(sizeof(Softmax)) + stages * stage_bytes,
        .overlaps_previous = true};
    K3POD_TRY(allow_shared("mla_attend", attend_kernel, shape.shared_bytes));
    K3POD_TRY(launch("mla_attend", attend_kernel, shape, stream, args, partials,
                     static_cast<int>(stages)));
    return args.num_splits == 1 ? Status::ok() : launch_merge(args, partials, stream);
}

}  // namespace k3pod::kernels

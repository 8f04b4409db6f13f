// Products with 5 to 64 rows of activations. The activations no longer fit shared memory, so a
// stage of the ring brings a chunk of them along with a chunk of 32 to 128 rows of weights. A
// kernel before this one splits them into bf16 parts and lays them out chunk by chunk.

#include <algorithm>

#include "common/launch.cuh"
#include "common/require.h"
#include "common/situ.cuh"
#include "common/stream.cuh"
#include "common/stream_plan.h"
#include "generic/gemm_io.cuh"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {
namespace {

constexpr int kMaxTileSteps = 4;  // of a warp in a chunk
constexpr int kLongestChunkBytes = 512;
constexpr int kSplitThreads = 256;

struct TileParams {
    StreamShape shape;  // num_groups: tiles of a block, one beside the other
    int32_t tokens = 0;
    int32_t num_token_tiles = 0;  // of eight tokens
    int32_t column_bytes = 0;     // of one token's part of a chunk
    DeviceRows x;
    std::byte* operand = nullptr;  // [chunks][high, low][tokens in tiles][column_bytes]
    TiledBands bands;
    float beta = 0;
    float linear_beta = 0;

    __host__ __device__ int32_t part_bytes() const { return num_token_tiles * 8 * column_bytes; }
    __host__ __device__ int32_t chunk_operand_bytes() const { return 2 * part_bytes(); }
    __host__ __device__ int32_t weight_stage_bytes() const {
        return shape.num_groups * kTileRows * shape.stage_stride();
    }
};

template <class F>
__global__ void __launch_bounds__(kSplitThreads)
    gemm_split_kernel(const __grid_constant__ TileParams p) {
    wait_for_previous();
    const int32_t units = p.shape.chunk_bytes / 16 * F::kUnits;
    const auto i = static_cast<int32_t>(blockIdx.x * kSplitThreads + threadIdx.x);
    const auto token = static_cast<int32_t>(blockIdx.y);
    const int32_t chunk = i / units;
    if (chunk >= p.shape.num_chunks) return;
    const int32_t cols = p.bands.bands[0].weight.cols;
    const SplitUnit x = load_split_unit<F>(p.x, p.tokens, cols, token, i);
    std::byte* at = p.operand + int64_t{chunk} * p.chunk_operand_bytes() + token * p.column_bytes +
                    Operand<F::kUnits>::unit_offset(i % units);
    *reinterpret_cast<uint4*>(at) = x.high;
    *reinterpret_cast<uint4*>(at + p.part_bytes()) = x.low;
}

// One stage: a chunk of the block's rows and of all tokens.
template <bool kIsGated>
__device__ void produce(const TileParams& p, StreamMemory& memory, const TileRange& blocks) {
    const StreamShape& shape = p.shape;
    const int rows = shape.num_groups * kTileRows;
    RingPosition at;
    for (int b = 0; b < blocks.count; ++b) {
        const int32_t first_tile = (blocks.begin + b) * shape.num_groups;
        for (int chunk = 0; chunk < shape.num_chunks; ++chunk, ++at.passed) {
            const int slot = at.passed % shape.num_stages;
            if (slot % kProducerWarps != warp_idx() - kConsumerWarps) continue;
            const int round = at.passed / shape.num_stages;
            if (round > 0) barrier_wait(&memory.empty[slot], (round - 1) & 1);
            std::byte* stage = memory.stage(shape, slot);
            const auto bytes = static_cast<uint32_t>(shape.chunk_size(chunk));
            uint32_t announced = 0;
            for (int i = lane_idx(); i < rows; i += kWarpSize) {
                const TileRow<kIsGated> row(p.bands, first_tile + i / kTileRows, i % kTileRows);
                announced += row.exists() ? bytes : 0;
            }
            announced = __reduce_add_sync(kAllLanes, announced);
            if (lane_idx() == 0) {
                const auto operand_bytes = static_cast<uint32_t>(p.chunk_operand_bytes());
                barrier_expect(&memory.full[slot], announced + operand_bytes);
                bulk_copy(stage + p.weight_stage_bytes(),
                          p.operand + int64_t{chunk} * operand_bytes, operand_bytes,
                          &memory.full[slot]);
            }
            __syncwarp();
            for (int i = lane_idx(); i < rows; i += kWarpSize) {
                const TileRow<kIsGated> row(p.bands, first_tile + i / kTileRows, i % kTileRows);
                if (!row.exists()) continue;
                const std::byte* from = row.weight().data + int64_t{row.row} * shape.row_bytes +
                                        int64_t{chunk} * shape.chunk_bytes;
                bulk_copy_once(stage + i * shape.stage_stride(), from, bytes, &memory.full[slot]);
            }
        }
    }
}

// Outputs of one tile and eight tokens. A lane's sums are rows g and g + 8 of tokens 2t and 2t + 1.
template <class F, bool kIsGated, class SumAt>
__device__ void write_outputs(const TileParams& p, const Consumer& me, int32_t tile,
                              int32_t first_token, SumAt sum_at) {
    constexpr int kRows = kIsGated ? 8 : kTileRows;
    const int threads = me.group_warps() * kWarpSize;
    for (int i = me.thread_of_group(); i < kRows * 8; i += threads) {
        const int token = i / kRows;
        const TileRow<kIsGated> at(p.bands, tile, i % kRows);
        if (first_token + token >= p.tokens || !at.exists()) continue;
        const int lane = i % 8 * 4 + token / 2;
        float value = sum_at(lane * 4 + i % kRows / 8 * 2 + token % 2) * F::unscale(at.weight());
        if constexpr (kIsGated) {
            const float up = sum_at(lane * 4 + 2 + token % 2) * F::unscale(p.bands.bands[1].weight);
            value = situ(value, up, p.beta, p.linear_beta);
        }
        write_output(*at.band, first_token + token, at.row, value);
    }
}

template <class F, bool kIsGated, int kTiles>
__device__ void consume(const TileParams& p, StreamMemory& memory, const TileRange& blocks) {
    const StreamShape& shape = p.shape;
    const Consumer me(shape);
    const auto scale_row = [&](int block, int row, int lane_of_quad) {
        const int32_t tile = (blocks.begin + block) * shape.num_groups + me.group;
        return TileRow<kIsGated>(p.bands, tile, row).template scale_row<F>(lane_of_quad);
    };
    ChunkScales<F, kMaxTileSteps> next;
    if (blocks.count > 0) next.load(shape, me, scale_row, 0, 0);
    RingPosition at;
    for (int b = 0; b < blocks.count; ++b) {
        Sums<kTiles> sums = {};
        for (int chunk = 0; chunk < shape.num_chunks; ++chunk, ++at.passed) {
            const ChunkScales<F, kMaxTileSteps> scales = next;
            const bool is_last = chunk + 1 == shape.num_chunks;
            if (!is_last) next.load(shape, me, scale_row, b, chunk + 1);
            if (is_last && b + 1 < blocks.count) next.load(shape, me, scale_row, b + 1, 0);
            const int slot = at.passed % shape.num_stages;
            const std::byte* stage = memory.stage(shape, slot);
            const std::byte* column =
                stage + p.weight_stage_bytes() + me.row * p.column_bytes + me.lane_of_quad * 16;
            const OperandLane operand{
                .high = column,
                .low = p.x.bf16 == nullptr ? column + p.part_bytes() : nullptr,
                .num_tiles = p.num_token_tiles,
                .tile_stride = 8 * p.column_bytes};
            barrier_wait(&memory.full[slot], (at.passed / shape.num_stages) & 1);
            add_chunk<F, kTiles, kMaxTileSteps>(sums, shape, me,
                                                stage + me.group * kTileRows * shape.stage_stride(),
                                                chunk, scales, operand, 0);
            __syncwarp();
            if (lane_idx() == 0) barrier_arrive(&memory.empty[slot]);
        }
        const int32_t tile = (blocks.begin + b) * shape.num_groups + me.group;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
            if (t >= p.num_token_tiles) continue;
            sum_over_group(memory, me, sums[t], [&](auto sum_at) {
                write_outputs<F, kIsGated>(p, me, tile, t * 8, sum_at);
            });
        }
    }
}

template <class F, bool kIsGated, int kTiles>
__global__ void __launch_bounds__(kStreamThreads, 1)
    gemm_tile_kernel(const __grid_constant__ TileParams p) {
    extern __shared__ __align__(128) std::byte shared[];
    auto& memory = *reinterpret_cast<StreamMemory*>(shared);
    const int32_t tiles_of_block = p.shape.num_groups;
    const TileRange blocks((p.bands.num_tiles + tiles_of_block - 1) / tiles_of_block);
    init_ring(memory, p.shape, kConsumerWarps);
    wait_for_previous();
    if (warp_idx() < kConsumerWarps) {
        consume<F, kIsGated, kTiles>(p, memory, blocks);
    } else {
        produce<kIsGated>(p, memory, blocks);
    }
}

struct TilePlan {
    StreamShape shape;
    int32_t grid = 0;
    int64_t shared_bytes = 0;
    int64_t cost = 0;  // bytes that the busiest block brings into shared memory
};

int32_t ceil_div(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

// For one choice of tiles side by side and length of a chunk; no stages: does not fit.
TilePlan plan_for(const DeviceLimits& limits, const TileParams& call, int32_t groups,
                  int32_t chunk_bytes) {
    TileParams p = call;
    TilePlan plan;
    p.shape.num_groups = groups;
    p.shape.chunk_bytes = chunk_bytes;
    p.shape.num_chunks = ceil_div(p.shape.row_bytes, chunk_bytes);
    p.column_bytes =
        operand_column_bytes(units_per_16_bytes(p.bands.bands[0].weight.format), chunk_bytes);
    p.shape.stage_bytes = p.weight_stage_bytes() + p.chunk_operand_bytes();
    const int64_t ring_bytes = limits.shared_bytes - kStreamMemoryBytes;
    p.shape.num_stages =
        static_cast<int32_t>(std::min<int64_t>(kMaxStages, ring_bytes / p.shape.stage_bytes));
    const int32_t blocks = ceil_div(p.bands.num_tiles, groups);
    plan.grid = std::min(limits.num_sms, blocks);
    plan.shared_bytes = kStreamMemoryBytes + int64_t{p.shape.num_stages} * p.shape.stage_bytes;
    // A copy costs as much as this many bytes, however short it is.
    constexpr int64_t kCopyBytes = 400;
    const int64_t chunk_cost =
        int64_t{groups} * kTileRows * (chunk_bytes + kCopyBytes) + p.chunk_operand_bytes();
    plan.cost = ceil_div(blocks, plan.grid) * p.shape.num_chunks * chunk_cost;
    plan.shape = p.shape;
    return plan;
}

TilePlan plan_tile(const DeviceLimits& limits, const TileParams& call) {
    TilePlan best;
    for (const int32_t groups : {8, 4, 2}) {
        for (int32_t chunk_bytes = kLongestChunkBytes; chunk_bytes >= 128; chunk_bytes /= 2) {
            const TilePlan plan = plan_for(limits, call, groups, chunk_bytes);
            if (plan.shape.num_stages < 2) continue;
            if (best.grid == 0 || plan.cost < best.cost) best = plan;
        }
    }
    return best;
}

template <class F>
Status launch_split(const TileParams& p, CudaStream stream) {
    const int32_t units = p.shape.num_chunks * (p.shape.chunk_bytes / 16) * F::kUnits;
    const LaunchShape shape{.grid = dim3(blocks_for(units, kSplitThreads),
                                         static_cast<unsigned>(p.num_token_tiles * 8)),
                            .block = kSplitThreads,
                            .overlaps_previous = true};
    return launch("gemm_split", gemm_split_kernel<F>, shape, stream, p);
}

template <class F, bool kIsGated>
auto kernel_for(int32_t num_token_tiles) {
    return num_token_tiles <= 2 ? gemm_tile_kernel<F, kIsGated, 2>
                                : gemm_tile_kernel<F, kIsGated, 8>;
}

template <class F>
Status launch_tile(const GemmCall& call, CudaStream stream) {
    TileParams p;
    p.tokens = call.tokens;
    p.num_token_tiles = ceil_div(call.tokens, 8);
    p.x = call.x;
    p.operand = call.workspace;
    p.bands = tile_bands(call);
    p.beta = call.beta;
    p.linear_beta = call.linear_beta;
    p.shape.row_bytes = static_cast<int32_t>(row_bytes_of(call.weight()));
    K3POD_ASSIGN(const DeviceLimits limits, current_device_limits());
    const TilePlan plan = plan_tile(limits, p);
    K3POD_TRY(require(plan.grid > 0, "gemm", "shared memory of a block", limits.shared_bytes,
                      "enough for two stages"));
    p.shape = plan.shape;
    p.column_bytes = operand_column_bytes(F::kUnits, p.shape.chunk_bytes);
    K3POD_TRY(launch_split<F>(p, stream));
    const char* name = call.is_gated ? "gated_gemm" : "gemm";
    const auto kernel = call.is_gated ? kernel_for<F, true>(p.num_token_tiles)
                                      : kernel_for<F, false>(p.num_token_tiles);
    K3POD_TRY(allow_shared(name, kernel, plan.shared_bytes));
    const LaunchShape shape{.grid = static_cast<unsigned>(plan.grid),
                            .block = kStreamThreads,
                            .shared_bytes = plan.shared_bytes,
                            .overlaps_previous = true};
    return launch(name, kernel, shape, stream, p);
}

}  // namespace

bool can_tile(const GemmCall& call) {
    return are_rows_pieces(call);
}

int64_t tile_gemm_workspace_bytes(const MatrixView& weight, int32_t max_tokens) {
    if (weight.format == WeightFormat::kF32) return 0;
    const int32_t tokens = ceil_div(std::min(max_tokens, kMaxTileTokens), 8) * 8;
    const int64_t row_bytes = row_bytes_of(weight);
    const int32_t units = units_per_16_bytes(weight.format);
    int64_t most = 0;
    for (int32_t chunk_bytes = kLongestChunkBytes; chunk_bytes >= 128; chunk_bytes /= 2) {
        const int64_t chunks = (row_bytes + chunk_bytes - 1) / chunk_bytes;
        most = std::max(most, chunks * 2 * tokens * operand_column_bytes(units, chunk_bytes));
    }
    return most;
}

Status tile_gemm(const GemmCall& call, CudaStream stream) {
    K3POD_TRY(require_pointer(call.workspace, "gemm", "workspace"));
    switch (call.weight().format) {
        case WeightFormat::kF32:
            break;
        case WeightFormat::kBf16:
            return launch_tile<Bf16Stream>(call, stream);
        case WeightFormat::kFp8Tile:
            return launch_tile<Fp8Stream>(call, stream);
        case WeightFormat::kNvfp4:
            return launch_tile<Nvfp4Stream>(call, stream);
        case WeightFormat::kMxfp4:
            return launch_tile<Mxfp4Stream>(call, stream);
    }
    return internal_error("gemm: f32 weights have no tile path");
}

}  // namespace k3pod::kernels

// Products that read every weight byte once, with the activations in shared memory.
//
// Up to four tokens are two columns each, the upper and the lower part, so that one product of the
// tensor cores takes both. More tokens are a column each in two operands, one for each part.

#include <algorithm>

#include "common/launch.cuh"
#include "common/operand_io.cuh"
#include "common/situ.cuh"
#include "common/stream.cuh"
#include "common/stream_plan.h"
#include "generic/gemm_io.cuh"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {
namespace {

constexpr int32_t kPairedTokens = 4;

struct StreamParams {
    StreamShape shape;
    int32_t tokens = 0;
    DeviceRows x;
    TiledBands bands;
    float beta = 0;
    float linear_beta = 0;
};

// Where outputs come from: a lane's kValues sums of a tile.
template <int kTiles>
struct ColumnPerPart {
    static constexpr int kValues = 4 * kTiles;
    static __device__ int32_t num_columns(int32_t tokens) { return tokens; }
    static __device__ int32_t column(int32_t token) { return token; }
    static __device__ void fold(const Sums<kTiles>& sums, float (&values)[kValues]) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) values[i] = sums[i / 4][i % 4];
    }
    static __device__ int lane(int row, int token) {
        return row % 8 * 4 + token % 8 / 2;
    }
    static __device__ int value(int row, int token) {
        return token / 8 * 4 + row / 8 * 2 + token % 2;
    }
    // The other way round.
    static __device__ int token(int lane_of_quad, int value) {
        return value / 4 * 8 + 2 * lane_of_quad + value % 2;
    }
};
struct ColumnsPaired {
    static constexpr int kValues = 2;
    static __device__ int32_t num_columns(int32_t tokens) { return 2 * tokens; }
    static __device__ int32_t column(int32_t token) { return 2 * token; }
    static __device__ void fold(const Sums<1>& sums, float (&values)[kValues]) {
        values[0] = sums[0][0] + sums[0][1];
        values[1] = sums[0][2] + sums[0][3];
    }
    static __device__ int lane(int row, int token) { return row % 8 * 4 + token; }
    static __device__ int value(int row, int) { return row / 8; }
    static __device__ int token(int lane_of_quad, int) { return lane_of_quad; }
};
template <int kTiles>
struct ColumnsFor {
    using Type = ColumnPerPart<kTiles>;
};
template <>
struct ColumnsFor<0> {
    using Type = ColumnsPaired;
};

// Tiles are dealt out to clusters in contiguous, equal parts, and there to groups in turn.
template <class F, bool kIsGated>
class GroupTiles {
  public:
    __device__ GroupTiles(const StreamParams& p, const StreamWarp& me, StepRange steps)
        : p_(p), lane_of_quad_(me.lane_of_quad), row_(me.row), steps_(steps) {
        const auto cluster = static_cast<int32_t>(blockIdx.x) / p.shape.cluster;
        const auto clusters = static_cast<int32_t>(gridDim.x) / p.shape.cluster;
        begin_ = first_of(cluster, clusters);
        end_ = first_of(cluster + 1, clusters);
        next_ = begin_ + me.group;
    }
    __device__ int32_t begin() const { return begin_; }
    __device__ int32_t end() const { return end_; }

    __device__ bool next(LaneRows& rows) {
        if (next_ >= end_) return false;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            // A row that does not exist is another one, whose output nobody writes.
            const TileRow<kIsGated> at(p_.bands, next_, row_ + 8 * i);
            const int32_t row = min(at.row, at.weight().rows - 1);
            rows.data[i] =
                at.weight().data + int64_t{row} * p_.shape.row_bytes + lane_of_quad_ * 16;
            rows.scales[i] = F::word_of(at.template scale_row<F>(lane_of_quad_));
        }
        rows.row_bytes = p_.shape.row_bytes - lane_of_quad_ * 16;
        rows.scale_step = F::kScaleStep;
        rows.steps = steps_;
        next_ += p_.shape.num_groups();
        return true;
    }
    // Of the tile that is consumed, which is not the one that next() is at.
    __device__ void scale_shifts(int32_t tile, int (&shifts)[2]) const {
        if constexpr (F::kHasShifts) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const TileRow<kIsGated> at(p_.bands, tile, row_ + 8 * i);
                shifts[i] = F::scale_shift(at.template scale_row<F>(lane_of_quad_));
            }
        }
    }

  private:
    __device__ int32_t first_of(int32_t cluster, int32_t clusters) const {
        return static_cast<int32_t>(int64_t{p_.bands.num_tiles} * cluster / clusters);
    }
    const StreamParams& p_;
    int32_t lane_of_quad_, row_;
    StepRange steps_;
    int32_t begin_, end_, next_;
};

// Where the operand's columns come from and go.
template <class F, class Columns>
struct OperandTokens {
    DeviceRows x;
    std::byte* operand;
    int32_t column_bytes;
    int32_t low_offset;
    __device__ OperandTokens(const StreamParams& p, std::byte* operand_memory)
        : x(p.x),
          operand(operand_memory),
          column_bytes(Operand<F::kUnits>::column_bytes(p.shape.block_steps())) {
        low_offset = Columns::kValues == 2 ? column_bytes
                     : x.bf16 == nullptr   ? Columns::num_columns(p.tokens) * column_bytes
                                           : 0;
    }
    __device__ DeviceRows row(int32_t token) const {
        if (x.f32 != nullptr) return {.f32 = x.f32 + token * x.stride};
        return {.bf16 = x.bf16 + token * x.stride};
    }
    __device__ std::byte* at(int32_t token) const {
        return operand + Columns::column(token) * column_bytes;
    }
};

template <class F, class Columns>
__device__ OperandLane operand_lane(const StreamParams& p, const std::byte* operand,
                                    const StreamWarp& me) {
    const int32_t column_bytes = Operand<F::kUnits>::column_bytes(p.shape.block_steps());
    const int32_t columns = Columns::num_columns(p.tokens);
    const std::byte* high =
        operand + min(me.row, columns - 1) * column_bytes + me.lane_of_quad * 16;
    const bool has_low = Columns::kValues != 2 && p.x.bf16 == nullptr;
    // With two tiles of tokens, a lane's second column may not exist either.
    const int32_t second = min(me.row + 8, columns - 1) - min(me.row, columns - 1);
    return {.high = high,
            .low = has_low ? high + columns * column_bytes : nullptr,
            .tile_stride = second * column_bytes};
}

// The threads that write outputs together, and the tiles of a round that they write.
struct Writers {
    int32_t thread, threads;
    int32_t first_group, groups;
    __device__ Writers(const StreamShape& shape, const StreamWarp& me, int32_t rank) {
        if (shape.cluster > 1) {
            const auto of_block = static_cast<int32_t>(blockDim.x);
            thread = rank * of_block + static_cast<int32_t>(threadIdx.x);
            threads = shape.cluster * of_block;
            first_group = 0, groups = shape.num_groups();
        } else {
            thread = me.warp_of_group * kWarpSize + lane_idx();
            threads = shape.group_warps * kWarpSize;
            first_group = me.group, groups = 1;
        }
    }
};

template <class F, bool kIsGated, class Columns>
__device__ void write_round(const StreamParams& p, const RoundSums<Columns::kValues>& sums,
                            int32_t first_tile, int32_t end_tile, const Writers& writers) {
    constexpr int kRows = kIsGated ? 8 : kTileRows;
    const int32_t of_tile = kRows * p.tokens;
    const int32_t tiles = min(writers.groups, end_tile - first_tile - writers.first_group);
    for (int32_t i = writers.thread; i < tiles * of_tile; i += writers.threads) {
        const int group = writers.first_group + i / of_tile;
        const int token = i % of_tile / kRows;
        const int row = i % kRows;
        const TileRow<kIsGated> at(p.bands, first_tile + group, row);
        if (!at.exists()) continue;
        const int lane = Columns::lane(row, token);
        float value = sums.total(group, lane, Columns::value(row, token)) * F::unscale(at.weight());
        if constexpr (kIsGated) {
            const float up = sums.total(group, lane, Columns::value(row + 8, token)) *
                             F::unscale(p.bands.bands[1].weight);
            value = situ(value, up, p.beta, p.linear_beta);
        }
        write_output(*at.band, token, at.row, value);
    }
}

// kTiles: of eight tokens; 0: up to four, paired.
template <class F, bool kIsGated, int kTiles, int kStages>
__global__ void __launch_bounds__(kMaxStreamThreads, 1)
    gemm_stream_kernel(const __grid_constant__ StreamParams p) {
    using Columns = typename ColumnsFor<kTiles>::Type;
    constexpr int kSumTiles = kTiles == 0 ? 1 : kTiles;
    extern __shared__ __align__(128) std::byte shared[];
    __shared__ TokenScales scales;
    std::byte* sums_memory = shared + ring_bytes(F::kFormat, num_warps(), kStages);
    std::byte* operand = sums_memory + sums_bytes(Columns::kValues, num_warps());

    const StreamWarp me(p.shape.group_warps);
    const auto rank = static_cast<int32_t>(blockIdx.x) % p.shape.cluster;
    const int32_t block_steps = p.shape.block_steps();
    const StepRange of_block{min(rank * block_steps, p.shape.num_steps()),
                             min((rank + 1) * block_steps, p.shape.num_steps())};
    const StepRange steps = steps_of_warp(me, p.shape.group_warps, of_block);
    const GroupTiles<F, kIsGated> tiles(p, me, steps);
    // Weights are written by nobody, so the copies begin before the previous kernel has ended.
    LaneStream<F, kStages, GroupTiles<F, kIsGated>> stream(shared, tiles);
    stream.start();
    wait_for_previous();
    const OperandTokens<F, Columns> tokens(p, operand);
    const OperandLoader<F, OperandTokens<F, Columns>> loader(
        tokens, p.tokens, p.bands.bands[0].weight.cols, of_block);
    loader.load(scales);

    float unscale[Columns::kValues];
#pragma unroll
    for (int i = 0; i < Columns::kValues; ++i) {
        const int token = min(Columns::token(me.lane_of_quad, i), p.tokens - 1);
        unscale[i] = F::kIsF16 ? 1.0f / scales.scale(token) : 1.0f;
    }
    const OperandLane lane = operand_lane<F, Columns>(p, operand, me);
    const Writers writers(p.shape, me, rank);
    RoundSums<Columns::kValues> round(sums_memory, p.shape, me);
    for (int32_t first = tiles.begin(); first < tiles.end(); first += p.shape.num_groups()) {
        const bool has_tile = first + me.group < tiles.end();
        if (has_tile) {
            int shifts[2] = {};
            tiles.scale_shifts(first + me.group, shifts);
            Sums<kSumTiles> sums = {};
            stream.template add_tile<F, kSumTiles>(sums, steps.count(), shifts, lane,
                                                   steps.begin - of_block.begin);
            float values[Columns::kValues];
            Columns::fold(sums, values);
#pragma unroll
            for (int i = 0; i < Columns::kValues; ++i) values[i] *= unscale[i];
            round.put(values);
        }
        if (p.shape.cluster == 1 && !has_tile) break;
        round.meet();
        write_round<F, kIsGated, Columns>(p, round, first, tiles.end(), writers);
        round.next_round();
    }
    if (p.shape.cluster > 1) round.meet();  // others read this block's sums
}

template <class F, bool kIsGated, int kStages>
auto kernel_for(int32_t tokens) {
    if (tokens <= kPairedTokens) return gemm_stream_kernel<F, kIsGated, 0, kStages>;
    return tokens <= 8 ? gemm_stream_kernel<F, kIsGated, 1, kStages>
                       : gemm_stream_kernel<F, kIsGated, 2, kStages>;
}

template <class F>
auto kernel_for(const GemmCall& call, int32_t stages) {
    if (stages == kFewStages) {
        return call.is_gated ? kernel_for<F, true, kFewStages>(call.tokens)
                             : kernel_for<F, false, kFewStages>(call.tokens);
    }
    return call.is_gated ? kernel_for<F, true, kManyStages>(call.tokens)
                         : kernel_for<F, false, kManyStages>(call.tokens);
}

StreamWork work_of(const GemmCall& call) {
    StreamWork work;
    work.format = call.weight().format;
    work.num_tiles = tile_bands(call).num_tiles;
    work.row_bytes = static_cast<int32_t>(row_bytes_of(call.weight()));
    const bool is_paired = call.tokens <= kPairedTokens;
    const bool has_low = is_paired || call.x.bf16 == nullptr;
    work.columns = call.tokens * (has_low ? 2 : 1);
    work.sum_values = is_paired ? 2 : call.tokens <= 8 ? 4 : 8;
    return work;
}

template <class F>
Status launch_stream(const GemmCall& call, CudaStream stream) {
    const char* name = call.is_gated ? "gated_gemm" : "gemm";
    K3POD_ASSIGN(const DeviceLimits limits, current_device_limits());
    auto plan = plan_stream(limits, work_of(call));
    if (!plan) return internal_error("gemm: the activations do not fit shared memory");
    const auto kernel = kernel_for<F>(call, plan->stages);
    const auto shape_of = [&] {
        return LaunchShape{.grid = static_cast<unsigned>(plan->grid),
                           .block = static_cast<unsigned>(plan->shape.warps * kWarpSize),
                           .shared_bytes = plan->shared_bytes,
                           .cluster = static_cast<unsigned>(plan->shape.cluster),
                           .overlaps_previous = true};
    };
    K3POD_TRY(allow_shared(name, kernel, plan->shared_bytes));
    if (plan->shape.cluster > 2) {
        K3POD_ASSIGN(const int32_t most, most_active_clusters(name, kernel, shape_of()));
        plan = plan_stream(limits, work_of(call), std::max(most, 1));
    }
    const StreamParams p{.shape = plan->shape,
                         .tokens = call.tokens,
                         .x = call.x,
                         .bands = tile_bands(call),
                         .beta = call.beta,
                         .linear_beta = call.linear_beta};
    return launch(name, kernel, shape_of(), stream, p);
}

}  // namespace

Result<int32_t> max_stream_tokens(const GemmCall& call) {
    if (!are_rows_pieces(call)) return 0;
    K3POD_ASSIGN(const DeviceLimits limits, current_device_limits());
    for (const int32_t tokens : {kMaxStreamedTokens, 8, kPairedTokens, 1}) {
        GemmCall part = call;
        part.tokens = tokens;
        if (plan_stream(limits, work_of(part))) return tokens;
    }
    return 0;
}

Status stream_gemm(const GemmCall& call, CudaStream stream) {
    switch (call.weight().format) {
        case WeightFormat::kF32:
            break;
        case WeightFormat::kBf16:
            return launch_stream<Bf16Stream>(call, stream);
        case WeightFormat::kFp8Tile:
            return launch_stream<Fp8Stream>(call, stream);
        case WeightFormat::kNvfp4:
            return launch_stream<Nvfp4Stream>(call, stream);
        case WeightFormat::kMxfp4:
            return launch_stream<Mxfp4Stream>(call, stream);
    }
    return internal_error("gemm: f32 weights are not streamed");
}

}  // namespace k3pod::kernels

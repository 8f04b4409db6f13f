// Products with up to four rows of activations: every weight byte passes once, the activations stay
// in shared memory as two bf16 columns a token.

#include "common/launch.cuh"
#include "common/situ.cuh"
#include "common/stream.cuh"
#include "common/stream_plan.h"
#include "generic/gemm_io.cuh"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {
namespace {

struct StreamParams {
    StreamShape shape;
    int32_t tokens = 0;
    DeviceRows x;
    TiledBands bands;
    float beta = 0;
    float linear_beta = 0;
};

// Columns 2t and 2t + 1 of the operand are the upper and lower bf16 part of token t.
template <class F>
__device__ void load_operand(const StreamParams& p, std::byte* operand) {
    const int32_t column_bytes = Operand<F::kUnits>::column_bytes(p.shape.row_bytes);
    const int32_t units = Operand<F::kUnits>::num_units(p.shape.row_bytes);
    const int32_t cols = p.bands.bands[0].weight.cols;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < units * p.tokens; i += kConsumers) {
        const int32_t token = i / units;
        const int32_t unit = i % units;
        const SplitUnit x = load_split_unit<F>(p.x, p.tokens, cols, token, unit);
        std::byte* at = operand + 2 * token * column_bytes + Operand<F::kUnits>::unit_offset(unit);
        *reinterpret_cast<uint4*>(at) = x.high;
        *reinterpret_cast<uint4*>(at + column_bytes) = x.low;
    }
}

// Thread i of the group writes one of the tile's 16 x 4 outputs, or of the 8 x 4 of a gated tile.
// The sums of a lane are rows g and g + 8 of token lane % 4.
template <class F, bool kIsGated, class SumAt>
__device__ void write_tile(const StreamParams& p, int32_t tile, int thread, SumAt sum_at) {
    constexpr int kRows = kIsGated ? 8 : kTileRows;
    const int token = thread / kRows;
    const int row_of_tile = thread % kRows;
    if (token >= p.tokens) return;
    const TileRow<kIsGated> at(p.bands, tile, row_of_tile);
    if (!at.exists()) return;
    const int lane = row_of_tile % 8 * 4 + token;
    float value = sum_at(lane * 2 + row_of_tile / 8) * F::unscale(at.weight());
    if constexpr (kIsGated) {
        const float up = sum_at(lane * 2 + 1) * F::unscale(p.bands.bands[1].weight);
        value = situ(value, up, p.beta, p.linear_beta);
    }
    write_output(*at.band, token, at.row, value);
}

template <class F, bool kIsGated>
__device__ void consume(const StreamParams& p, StreamMemory& memory, const TileRange& tiles) {
    wait_for_previous();
    load_operand<F>(p, memory.operand());
    sync_consumers();

    const Consumer me(p.shape);
    const int32_t column = min(me.row, 2 * p.tokens - 1);
    const OperandLane operand{.high = memory.operand() +
                                      column * Operand<F::kUnits>::column_bytes(p.shape.row_bytes) +
                                      me.lane_of_quad * 16};
    const auto scale_row = [&](int tile, int row, int lane_of_quad) {
        const TileRow<kIsGated> at(p.bands, tiles.begin + tile, row);
        return at.template scale_row<F>(lane_of_quad);
    };
    const auto finish = [&](int tile, const float(&sums)[4]) {
        const float of_tokens[2] = {sums[0] + sums[1], sums[2] + sums[3]};
        sum_over_group(memory, me, of_tokens, [&](auto sum_at) {
            if (me.thread_of_group() < 4 * kTileRows) {
                write_tile<F, kIsGated>(p, tiles.begin + tile, me.thread_of_group(), sum_at);
            }
        });
    };
    RingPosition at;
    consume_tiles<F>(memory, p.shape, tiles.count, operand, scale_row, finish, at);
}

template <class F, bool kIsGated>
__global__ void __launch_bounds__(kStreamThreads, 1)
    gemm_stream_kernel(const __grid_constant__ StreamParams p) {
    extern __shared__ __align__(128) std::byte shared[];
    auto& memory = *reinterpret_cast<StreamMemory*>(shared);
    const TileRange tiles(p.bands.num_tiles);
    init_ring(memory, p.shape, p.shape.warps_per_group());
    if (warp_idx() < kConsumerWarps) {
        consume<F, kIsGated>(p, memory, tiles);
        return;
    }
    // Weights are written by nobody, so the copies begin before the previous kernel has ended.
    const auto row_of = [&](int tile, int row) -> const std::byte* {
        const TileRow<kIsGated> at(p.bands, tiles.begin + tile, row);
        return at.exists() ? at.weight().data + int64_t{at.row} * p.shape.row_bytes : nullptr;
    };
    RingPosition at;
    produce_tiles(memory, p.shape, tiles.count, row_of, at);
}

int64_t operand_bytes_of(const GemmCall& call) {
    const auto row_bytes = static_cast<int32_t>(row_bytes_of(call.weight()));
    return int64_t{2} * call.tokens *
           operand_column_bytes(units_per_16_bytes(call.weight().format), row_bytes);
}

Result<StreamPlan> plan_of(const GemmCall& call) {
    K3POD_ASSIGN(const DeviceLimits limits, current_device_limits());
    const auto plan = plan_stream(limits, tile_bands(call).num_tiles, row_bytes_of(call.weight()),
                                  operand_bytes_of(call));
    if (!plan) return failed_precondition("gemm: the activations do not fit shared memory");
    return *plan;
}

template <class F>
Status launch_stream(const GemmCall& call, CudaStream stream) {
    K3POD_ASSIGN(const StreamPlan plan, plan_of(call));
    const StreamParams p{.shape = plan.shape,
                         .tokens = call.tokens,
                         .x = call.x,
                         .bands = tile_bands(call),
                         .beta = call.beta,
                         .linear_beta = call.linear_beta};
    const LaunchShape shape{.grid = static_cast<unsigned>(plan.grid),
                            .block = kStreamThreads,
                            .shared_bytes = plan.shared_bytes,
                            .overlaps_previous = true};
    const char* name = call.is_gated ? "gated_gemm" : "gemm";
    const auto kernel = call.is_gated ? gemm_stream_kernel<F, true> : gemm_stream_kernel<F, false>;
    K3POD_TRY(allow_shared(name, kernel, plan.shared_bytes));
    return launch(name, kernel, shape, stream, p);
}

}  // namespace

bool can_stream(const GemmCall& call) {
    return call.tokens <= kMaxStreamedTokens && are_rows_pieces(call) && plan_of(call).is_ok();
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

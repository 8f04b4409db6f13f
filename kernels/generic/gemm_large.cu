// Products with many tokens and a large matrix. Weights are widened to bf16, a part of the rows at
// a time, activations rounded to it, and cuBLASLt multiplies them.

#include <cuda_fp16.h>

#include <algorithm>

#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/require.h"
#include "common/situ.cuh"
#include "common/vectors.cuh"
#include "common/weights.cuh"
#include "generic/cublas_lt.h"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kValues = 8;  // of a thread
constexpr int64_t kPartBytes = int64_t{64} << 20;
constexpr int64_t kSmallestMatrix = int64_t{1} << 20;  // values
constexpr int32_t kLongRow = 2048;                     // or values of a row, for 32 rows and more
constexpr int32_t kFewestTokens = 96;
// Of a gated product, whose gate and up lie in the workspace.
constexpr int32_t kGatedPartRows = 2048;

struct WidenParams {
    MatrixView weight;
    int32_t first_row = 0;
    Bf16* to = nullptr;
};

// Sixteen E4M3 of one row, which share a scale: 128 columns do.
__device__ void widen_piece(const uint4& piece, float scale, Bf16* to) {
    const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        Floats<4> values;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t pair = e4m3x2_to_f16x2(words[w] >> (16 * half));
            const float2 both = __half22float2(reinterpret_cast<const __half2&>(pair));
            values.at[2 * half] = both.x * scale;
            values.at[2 * half + 1] = both.y * scale;
        }
        store(to + 4 * w, values);
    }
}

__global__ void __launch_bounds__(kThreads)
    widen_fp8_kernel(const __grid_constant__ WidenParams p) {
    wait_for_previous();
    const int32_t row = p.first_row + static_cast<int32_t>(blockIdx.y);
    const auto col = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x) * 16;
    if (col >= p.weight.cols) return;
    const int64_t tiles = (p.weight.cols + kFp8TileSize - 1) / kFp8TileSize;
    const float scale = reinterpret_cast<const float*>(
        p.weight.scales)[row / kFp8TileSize * tiles + col / kFp8TileSize];
    const std::byte* from = p.weight.data + int64_t{row} * p.weight.cols + col;
    widen_piece(__ldg(reinterpret_cast<const uint4*>(from)), scale,
                p.to + int64_t{blockIdx.y} * p.weight.cols + col);
}

__global__ void __launch_bounds__(kThreads) widen_kernel(const __grid_constant__ WidenParams p) {
    wait_for_previous();
    const int32_t row = p.first_row + static_cast<int32_t>(blockIdx.y);
    const auto col = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x) * kValues;
    if (col >= p.weight.cols) return;
    Floats<kValues> values;
#pragma unroll
    for (int i = 0; i < kValues; ++i) values.at[i] = weight_at(p.weight, row, col + i);
    store(p.to + int64_t{blockIdx.y} * p.weight.cols + col, values);
}

struct RoundParams {
    DeviceRows x;
    int32_t cols = 0;
    Bf16* to = nullptr;
};

__global__ void __launch_bounds__(kThreads) round_kernel(const __grid_constant__ RoundParams p) {
    wait_for_previous();
    const auto token = static_cast<int64_t>(blockIdx.y);
    const auto col = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
    if (col >= p.cols) return;
    const int64_t from = token * p.x.stride + col;
    p.to[token * p.cols + col] = p.x.f32 != nullptr ? round_to_bf16(p.x.f32[from]) : p.x.bf16[from];
}

struct SituParams {
    const float *gate = nullptr, *up = nullptr;
    int32_t rows = 0, first_row = 0;
    float beta = 0, linear_beta = 0;
    DeviceRowsOut y;
};

__global__ void __launch_bounds__(kThreads) situ_kernel(const __grid_constant__ SituParams p) {
    wait_for_previous();
    const auto token = static_cast<int64_t>(blockIdx.y);
    const auto row = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
    if (row >= p.rows) return;
    const int64_t from = token * p.rows + row;
    const float value = situ(p.gate[from], p.up[from], p.beta, p.linear_beta);
    store_outputs<1>(p.y.f32, p.y.bf16, token * p.y.stride + p.first_row + row, {{value}});
}

int64_t aligned(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

// Whole tiles of the library, whose outputs stay aligned.
int32_t part_rows(int32_t rows, const MatrixView& weight, bool is_gated) {
    constexpr int64_t kTile = 256;
    const int64_t fit = kPartBytes / (int64_t{weight.cols} * 2) / kTile * kTile;
    int64_t most = weight.format == WeightFormat::kBf16 ? rows : std::max(fit, kTile);
    if (is_gated) most = std::min<int64_t>(most, kGatedPartRows);
    return static_cast<int32_t>(std::min<int64_t>(most, rows));
}

int32_t most_rows(const GemmCall& call) {
    int32_t most = 0;
    for (int32_t b = 0; b < call.num_bands; ++b) most = std::max(most, call.bands[b].weight.rows);
    return most;
}

// The workspace, in this order.
struct Space {
    int64_t x = 0, weight = 0, gate_up = 0, cublas = 0, bytes = 0;
    Space(const MatrixView& weight_of_call, bool is_gated, int64_t tokens, int64_t most_part_rows) {
        const int64_t cols = weight_of_call.cols;
        weight = aligned(tokens * cols * 2);
        const bool is_widened = weight_of_call.format != WeightFormat::kBf16;
        gate_up = weight + (is_widened ? aligned(most_part_rows * cols * 2) : 0);
        cublas = gate_up + (is_gated ? 2 * aligned(tokens * most_part_rows * 4) : 0);
        bytes = cublas + kCublasWorkspaceBytes;
    }
};

class LargeGemm {
  public:
    LargeGemm(const GemmCall& call, CudaStream stream)
        : call_(call),
          stream_(stream),
          part_rows_(part_rows(most_rows(call), call.weight(), call.is_gated)),
          space_(call.weight(), call.is_gated, call.tokens, part_rows_) {}

    Status run() const {
        K3POD_TRY(round_activations());
        if (call_.is_gated) return run_gated();
        for (int32_t b = 0; b < call_.num_bands; ++b) {
            const GemmBand& band = call_.bands[b];
            for (int32_t first = 0; first < band.weight.rows; first += part_rows_) {
                const int32_t rows = std::min(part_rows_, band.weight.rows - first);
                K3POD_TRY(multiply(band.weight, first, rows, band.y.f32 + first, band.y.stride,
                                   band.adds));
            }
        }
        return Status::ok();
    }

  private:
    Bf16* x() const { return reinterpret_cast<Bf16*>(call_.workspace + space_.x); }

    Status round_activations() const {
        const int32_t cols = call_.weight().cols;
        const LaunchShape shape{
            .grid = dim3(blocks_for(cols, kThreads), static_cast<unsigned>(call_.tokens)),
            .block = kThreads,
            .overlaps_previous = true};
        return launch("gemm_round", round_kernel, shape, stream_,
                      RoundParams{.x = call_.x, .cols = cols, .to = x()});
    }
    Status multiply(const MatrixView& weight, int32_t first, int32_t rows, float* y,
                    int64_t y_stride, bool adds) const {
        auto* w = reinterpret_cast<Bf16*>(call_.workspace + space_.weight);
        const bool is_bf16 = weight.format == WeightFormat::kBf16;
        if (!is_bf16) {
            const bool is_fp8 = weight.format == WeightFormat::kFp8Tile && weight.cols % 16 == 0;
            const LaunchShape shape{
                .grid = dim3(blocks_for(weight.cols, kThreads * (is_fp8 ? 16 : kValues)),
                             static_cast<unsigned>(rows)),
                .block = kThreads,
                .overlaps_previous = true};
            K3POD_TRY(launch("gemm_widen", is_fp8 ? widen_fp8_kernel : widen_kernel, shape, stream_,
                             WidenParams{.weight = weight, .first_row = first, .to = w}));
        }
        const auto* stored =
            reinterpret_cast<const Bf16*>(weight.data) + int64_t{first} * weight.cols;
        return multiply_bf16({.tokens = call_.tokens,
                              .rows = rows,
                              .cols = weight.cols,
                              .x = x(),
                              .w = is_bf16 ? stored : w,
                              .y = y,
                              .y_stride = y_stride,
                              .adds = adds,
                              .workspace = call_.workspace + space_.cublas},
                             stream_);
    }
    Status run_gated() const {
        auto* gate = reinterpret_cast<float*>(call_.workspace + space_.gate_up);
        float* up = gate + aligned(int64_t{call_.tokens} * part_rows_ * 4) / 4;
        const GemmBand &gate_band = call_.bands[0], &up_band = call_.bands[1];
        for (int32_t first = 0; first < gate_band.weight.rows; first += part_rows_) {
            const int32_t rows = std::min(part_rows_, gate_band.weight.rows - first);
            K3POD_TRY(multiply(gate_band.weight, first, rows, gate, rows, false));
            K3POD_TRY(multiply(up_band.weight, first, rows, up, rows, false));
            const LaunchShape shape{
                .grid = dim3(blocks_for(rows, kThreads), static_cast<unsigned>(call_.tokens)),
                .block = kThreads,
                .overlaps_previous = true};
            K3POD_TRY(launch("gemm_situ", situ_kernel, shape, stream_,
                             SituParams{.gate = gate,
                                        .up = up,
                                        .rows = rows,
                                        .first_row = first,
                                        .beta = call_.beta,
                                        .linear_beta = call_.linear_beta,
                                        .y = gate_band.y}));
        }
        return Status::ok();
    }

    const GemmCall& call_;
    CudaStream stream_;
    int32_t part_rows_;
    Space space_;
};

bool is_large(const MatrixView& weight, int32_t tokens) {
    const int64_t values = int64_t{weight.rows} * weight.cols;
    const bool is_worth_it =
        values >= kSmallestMatrix || (weight.cols >= kLongRow && weight.rows >= 32);
    return is_worth_it && tokens >= kFewestTokens && weight.format != WeightFormat::kF32 &&
           weight.cols % 8 == 0 && has_cublas_lt();
}

}  // namespace

bool can_multiply_large(const GemmBand& band, int32_t tokens) {
    return band.y.f32 != nullptr && band.y.bf16 == nullptr && band.y.stride % 4 == 0 &&
           reinterpret_cast<uintptr_t>(band.y.f32) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(band.weight.data) % 16 == 0 && is_large(band.weight, tokens);
}

Status large_gemm(const GemmCall& call, CudaStream stream) {
    K3POD_TRY(require_pointer(call.workspace, "gemm", "workspace"));
    return LargeGemm(call, stream).run();
}

int64_t large_gemm_workspace_bytes(const MatrixView& weight, bool is_gated, int32_t tokens) {
    if (!is_large(weight, tokens)) return 0;
    return Space(weight, is_gated, tokens, part_rows(weight.rows, weight, is_gated)).bytes;
}

}  // namespace k3pod::kernels

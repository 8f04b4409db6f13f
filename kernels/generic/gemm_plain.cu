// Products of any shape, format and alignment: a warp for each output row, one value at a time.
// What the model's own shapes never take on a GPU that matters.

#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/situ.cuh"
#include "common/vectors.cuh"
#include "common/weights.cuh"
#include "generic/gemm_io.cuh"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {
namespace {

constexpr int kRowsPerBlock = 8;
constexpr int kTokensTogether = 4;

__device__ float x_at(const DeviceRows& x, int32_t token, int32_t col) {
    const int64_t at = token * x.stride + col;
    return x.f32 != nullptr ? x.f32[at] : widen(x.bf16[at]);
}

// Of kTokensTogether tokens from `token` on, in every lane.
__device__ void dot_row(const MatrixView& w, int32_t row, const GemmCall& call, int32_t token,
                        float (&sums)[kTokensTogether]) {
    for (int32_t col = lane_idx(); col < w.cols; col += kWarpSize) {
        const float weight = weight_at(w, row, col);
#pragma unroll
        for (int t = 0; t < kTokensTogether; ++t) {
            if (token + t < call.tokens) sums[t] += weight * x_at(call.x, token + t, col);
        }
    }
#pragma unroll
    for (float& sum : sums) sum = sum_lanes(sum);
}

__global__ void gemm_plain_kernel(const __grid_constant__ GemmCall call) {
    wait_for_previous();
    const auto row = static_cast<int32_t>(blockIdx.x) * kRowsPerBlock + warp_idx();
    const auto first_token = static_cast<int32_t>(blockIdx.y) * kTokensTogether;
    const GemmBand& band = call.bands[call.is_gated ? 0 : blockIdx.z];
    if (row >= band.weight.rows) return;
    float sums[kTokensTogether] = {}, ups[kTokensTogether] = {};
    dot_row(band.weight, row, call, first_token, sums);
    if (call.is_gated) dot_row(call.bands[1].weight, row, call, first_token, ups);
    if (lane_idx() != 0) return;
#pragma unroll
    for (int t = 0; t < kTokensTogether; ++t) {
        if (first_token + t >= call.tokens) break;
        const float value =
            call.is_gated ? situ(sums[t], ups[t], call.beta, call.linear_beta) : sums[t];
        write_output(band, first_token + t, row, value);
    }
}

}  // namespace

Status plain_gemm(const GemmCall& call, CudaStream stream) {
    int32_t most_rows = 0;
    for (int32_t i = 0; i < call.num_bands; ++i) {
        most_rows = call.bands[i].weight.rows > most_rows ? call.bands[i].weight.rows : most_rows;
    }
    const LaunchShape shape{
        .grid = dim3(blocks_for(most_rows, kRowsPerBlock), blocks_for(call.tokens, kTokensTogether),
                     call.is_gated ? 1 : static_cast<unsigned>(call.num_bands)),
        .block = kRowsPerBlock * kWarpSize,
        .overlaps_previous = true};
    return launch(call.is_gated ? "gated_gemm" : "gemm", gemm_plain_kernel, shape, stream, call);
}

}  // namespace k3pod::kernels

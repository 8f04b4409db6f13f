#include "k3pod/kernels/norm.h"

#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/require.h"
#include "common/vectors.cuh"

namespace k3pod::kernels {
namespace {

// One block a row; the second read of x comes from the L1 cache.
template <int kVec>
__global__ void __launch_bounds__(1024) rms_norm_kernel(RmsNormArgs args) {
    __shared__ float scratch[kWarpSize];
    wait_for_previous();
    const float* x = args.x + blockIdx.x * args.x_stride;
    const int step = static_cast<int>(blockDim.x) * kVec;
    const int first = static_cast<int>(threadIdx.x) * kVec;
    float squares = 0;
    for (int i = first; i < args.width; i += step) {
        const auto v = load<kVec>(x + i);
#pragma unroll
        for (int j = 0; j < kVec; ++j) squares = fmaf(v.at[j], v.at[j], squares);
    }
    const float mean = sum_block(squares, scratch) / static_cast<float>(args.width);
    const float scale = 1.0f / sqrtf(mean + args.eps);
    const int64_t out = int64_t{blockIdx.x} * args.width;
    for (int i = first; i < args.width; i += step) {
        auto v = load<kVec>(x + i);
        const auto weight = load<kVec>(args.weight + i);
#pragma unroll
        for (int j = 0; j < kVec; ++j) v.at[j] = weight.at[j] * (v.at[j] * scale);
        store_outputs(args.y, args.y_bf16, out + i, v);
    }
}

}  // namespace

Status rms_norm(const RmsNormArgs& args, CudaStream stream) {
    constexpr const char* kName = "rms_norm";
    K3POD_TRY(require(args.rows >= 0, kName, "rows", args.rows, "at least 0"));
    K3POD_TRY(require(args.width > 0, kName, "width", args.width, "at least 1"));
    K3POD_TRY(require(args.x_stride == 0 || args.x_stride >= args.width, kName, "x_stride",
                      args.x_stride, "0 or at least width"));
    if (args.rows == 0) return Status::ok();
    RmsNormArgs full = args;
    if (full.x_stride == 0) full.x_stride = args.width;
    const bool vectors =
        are_rows_vectors(args.x, full.x_stride) && are_rows_vectors(args.weight, args.width) &&
        are_rows_vectors(args.y, args.width) && are_rows_vectors(args.y_bf16, args.width);
    const LaunchShape shape{.grid = static_cast<unsigned>(args.rows),
                            .block = block_size_for(args.width / (vectors ? 4 : 1) + 1, 1024),
                            .overlaps_previous = true};
    return launch(kName, vectors ? rms_norm_kernel<4> : rms_norm_kernel<1>, shape, stream, full);
}

}  // namespace k3pod::kernels

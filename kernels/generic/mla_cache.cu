// Latents into the pages of the cache.

#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/require.h"
#include "common/vectors.cuh"
#include "generic/mla.cuh"

namespace k3pod::kernels {
namespace {

constexpr int kThreads = 128;

// One block a row of a chunk.
__global__ void __launch_bounds__(kThreads) write_latents_kernel(MlaWriteLatentsArgs args) {
    __shared__ float scratch[kWarpSize];
    wait_for_previous();
    const int t = static_cast<int>(blockIdx.x);
    const int chunk = static_cast<int>(blockIdx.y);
    if (t >= args.chunks.num_rows[chunk]) return;
    const float* kv = args.kv + (args.chunks.first_row[chunk] + t) * args.kv_stride;
    const int position = args.chunks.positions[chunk] + t;
    Bf16* row =
        args.cache.pages + cache_row_offset(args.dims, args.cache, args.chunks, chunk, position);

    const int rank = args.dims.rank;
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x); i < rank; i += kThreads) {
        squares = fmaf(kv[i], kv[i], squares);
    }
    const float mean = sum_block(squares, scratch) / static_cast<float>(rank);
    const float scale = 1.0f / sqrtf(mean + args.eps);
    for (int i = static_cast<int>(threadIdx.x); i < args.dims.cache_width(); i += kThreads) {
        row[i] = round_to_bf16(i < rank ? args.norm_weight[i] * (kv[i] * scale) : kv[i]);
    }
}

}  // namespace

Status mla_write_latents(const MlaWriteLatentsArgs& args, CudaStream stream) {
    constexpr const char* kName = "mla_write_latents";
    K3POD_TRY(check_mla(kName, args.dims, args.chunks));
    K3POD_TRY(check_mla_cache(kName, args.dims, args.cache));
    K3POD_TRY(require(args.kv_stride == 0 || args.kv_stride >= args.dims.cache_width(), kName,
                      "kv_stride", args.kv_stride, "0 or at least rank + rope"));
    if (args.chunks.num_chunks == 0) return Status::ok();
    MlaWriteLatentsArgs full = args;
    if (full.kv_stride == 0) full.kv_stride = args.dims.cache_width();
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.chunks.max_rows),
                                         static_cast<unsigned>(args.chunks.num_chunks)),
                            .block = kThreads,
                            .overlaps_previous = true};
    return launch(kName, write_latents_kernel, shape, stream, full);
}

}  // namespace k3pod::kernels

// The two products with the bands of kv_b, head by head: W_UK^T on queries, W_UV on latents. fp32
// sums of the weights as they are; a row's bits do not depend on how many rows there are.

#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/vectors.cuh"
#include "common/weights.cuh"
#include "generic/mla.cuh"

namespace k3pod::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kTileRows = 8;              // rows that share a reading of the weights
constexpr int kTileCols = kWarpSize * 4;  // of the rank, in absorption
constexpr int kValuesPerWarp = 2;         // rows of W_UV, in expansion
constexpr int kTileValues = kWarps * kValuesPerWarp;
static_assert(kValuesPerWarp * kTileRows <= kWarpSize);

// Four weights of a row, from a column that is a multiple of 4.
template <bool kIsFp8>
__device__ Floats<4> four_weights(const MatrixView& w, int64_t row, int64_t col) {
    Floats<4> values;
    if constexpr (kIsFp8) {
        const uint32_t bytes = *reinterpret_cast<const uint32_t*>(w.data + row * w.cols + col);
        const int64_t tiles = (w.cols + kFp8TileSize - 1) / kFp8TileSize;
        const float scale = reinterpret_cast<const float*>(
            w.scales)[row / kFp8TileSize * tiles + col / kFp8TileSize];
#pragma unroll
        for (int i = 0; i < 4; ++i) values.at[i] = e4m3_to_f32(bytes >> (8 * i) & 0xffu) * scale;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) values.at[i] = weight_at(w, row, col + i);
    }
    return values;
}

// Rows [first, first + kRows) of x, `width` floats of each, into shared memory; zeros past `rows`.
template <int kRows>
__device__ void stage_rows(const float* x, int64_t stride, int first, int rows, int width,
                           float* to) {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * width; i += kThreads) {
        const int r = i / width;
        to[i] = first + r < rows ? x[(first + r) * stride + i - r * width] : 0.0f;
    }
    __syncthreads();
}

// A block: one head, 128 columns of the rank, kRows rows. Warp w takes every kWarps-th row of W_UK,
// a lane 4 columns; the warps' sums are added up in shared memory.
template <int kRows, bool kIsFp8>
__global__ void __launch_bounds__(kThreads) absorb_kernel(MlaAbsorbQueryArgs args) {
    extern __shared__ float shared[];
    wait_for_previous();
    const MlaDims& dims = args.dims;
    const int head = static_cast<int>(blockIdx.x);
    const int first_row = static_cast<int>(blockIdx.z) * kRows;
    const int col = static_cast<int>(blockIdx.y) * kTileCols + lane_idx() * 4;
    const int64_t q_stride = int64_t{dims.heads} * dims.query_width();
    const float* q = args.q + int64_t{head} * dims.query_width();
    float* nope = shared;                      // [kRows, nope]
    float* sums = shared + kRows * dims.nope;  // [kWarps, kRows, kTileCols]
    stage_rows<kRows>(q, q_stride, first_row, args.rows, dims.nope, nope);

    Floats<4> acc[kRows] = {};
    if (col < dims.rank) {
        const int64_t band = int64_t{head} * (dims.nope + dims.value);
#pragma unroll 8
        for (int n = warp_idx(); n < dims.nope; n += kWarps) {
            const auto w = four_weights<kIsFp8>(args.kv_b, band + n, col);
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                const float x = nope[r * dims.nope + n];
#pragma unroll
                for (int i = 0; i < 4; ++i) acc[r].at[i] = fmaf(x, w.at[i], acc[r].at[i]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sums[(warp_idx() * kRows + r) * kTileCols + lane_idx() * 4 + i] = acc[r].at[i];
        }
    }
    __syncthreads();
    const auto out = [&](int r) {
        return args.latent_q + (int64_t{first_row + r} * dims.heads + head) * dims.cache_width();
    };
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kTileCols; i += kThreads) {
        const int r = i / kTileCols;
        const int c = static_cast<int>(blockIdx.y) * kTileCols + i % kTileCols;
        if (first_row + r >= args.rows || c >= dims.rank) continue;
        float sum = 0;
        for (int w = 0; w < kWarps; ++w) sum += sums[w * kRows * kTileCols + i];
        out(r)[c] = round_to_bf16(sum * args.scale);
    }
    if (blockIdx.y != 0) return;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * dims.rope; i += kThreads) {
        const int r = i / dims.rope;
        const int c = i % dims.rope;
        if (first_row + r >= args.rows) continue;
        out(r)[dims.rank + c] =
            round_to_bf16(q[(first_row + r) * q_stride + dims.nope + c] * args.scale);
    }
}

// A block: one head, kTileValues rows of W_UV, kRows rows. A warp sums over the rank with its lanes
// side by side.
template <int kRows, bool kIsFp8>
__global__ void __launch_bounds__(kThreads) expand_kernel(MlaExpandValuesArgs args) {
    extern __shared__ float latents[];  // [kRows, rank]
    wait_for_previous();
    const MlaDims& dims = args.dims;
    const int head = static_cast<int>(blockIdx.x);
    const int first_row = static_cast<int>(blockIdx.z) * kRows;
    stage_rows<kRows>(args.latent_out + int64_t{head} * dims.rank, int64_t{dims.heads} * dims.rank,
                      first_row, args.rows, dims.rank, latents);

    const int first_value =
        static_cast<int>(blockIdx.y) * kTileValues + warp_idx() * kValuesPerWarp;
    const int64_t band = int64_t{head} * (dims.nope + dims.value) + dims.nope;
    float acc[kValuesPerWarp][kRows] = {};
#pragma unroll 4
    for (int c = lane_idx() * 4; c < dims.rank; c += kWarpSize * 4) {
        Floats<4> w[kValuesPerWarp];
#pragma unroll
        for (int v = 0; v < kValuesPerWarp; ++v) {
            const int value = min(first_value + v, dims.value - 1);
            w[v] = four_weights<kIsFp8>(args.kv_b, band + value, c);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const auto x = load<4>(latents + r * dims.rank + c);
#pragma unroll
            for (int v = 0; v < kValuesPerWarp; ++v) {
#pragma unroll
                for (int i = 0; i < 4; ++i) acc[v][r] = fmaf(w[v].at[i], x.at[i], acc[v][r]);
            }
        }
    }
    // Lane v * kRows + r has value v of row r, so that all gates are read together.
    float mine = 0;
#pragma unroll
    for (int i = 0; i < kValuesPerWarp * kRows; ++i) {
        const float sum = sum_lanes(acc[i / kRows][i % kRows]);
        if (lane_idx() == i) mine = sum;
    }
    const int value = first_value + lane_idx() / kRows;
    const int row = first_row + lane_idx() % kRows;
    if (lane_idx() >= kValuesPerWarp * kRows || row >= args.rows || value >= dims.value) return;
    const int64_t column = int64_t{head} * dims.value + value;
    Floats<1> o{mine};
    if (args.g != nullptr) o.at[0] *= sigmoid(args.g[row * args.g_stride + column]);
    store_outputs(args.o, args.o_bf16, int64_t{row} * dims.heads * dims.value + column, o);
}

// kv_b as whole words of FP8.
bool is_fast_fp8(const MatrixView& kv_b) {
    return kv_b.format == WeightFormat::kFp8Tile && kv_b.cols % 4 == 0 &&
           reinterpret_cast<uintptr_t>(kv_b.data) % 4 == 0;
}

template <class Args>
Status launch_by_rows(const char* name, void (*const (&kernels)[2][2])(Args), const Args& args,
                      int64_t tiles, int64_t (*shared_bytes)(const MlaDims&, int),
                      CudaStream stream) {
    const bool is_one = args.rows == 1;
    const int tile_rows = is_one ? 1 : kTileRows;
    const LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(args.dims.heads), static_cast<unsigned>(tiles),
                     blocks_for(args.rows, tile_rows)),
        .block = kThreads,
        .shared_bytes = shared_bytes(args.dims, tile_rows),
        .overlaps_previous = true};
    return launch(name, kernels[is_one ? 0 : 1][is_fast_fp8(args.kv_b) ? 1 : 0], shape, stream,
                  args);
}

}  // namespace

Status mla_absorb_query(const MlaAbsorbQueryArgs& args, CudaStream stream) {
    constexpr const char* kName = "mla_absorb_query";
    K3POD_TRY(check_mla_dims(kName, args.dims));
    K3POD_TRY(check_kv_b(kName, args.dims, args.kv_b));
    K3POD_TRY(require(args.rows >= 0, kName, "rows", args.rows, "at least 0"));
    if (args.rows == 0) return Status::ok();
    static constexpr void (*kKernels[2][2])(MlaAbsorbQueryArgs) = {
        {absorb_kernel<1, false>, absorb_kernel<1, true>},
        {absorb_kernel<kTileRows, false>, absorb_kernel<kTileRows, true>}};
    const auto shared_bytes = [](const MlaDims& dims, int rows) {
        return int64_t{rows} * (dims.nope + kWarps * kTileCols) * int64_t{sizeof(float)};
    };
    for (const auto& kernels : kKernels) {
        for (const auto kernel : kernels) {
            K3POD_TRY(allow_shared(kName, kernel, shared_bytes(args.dims, kTileRows)));
        }
    }
    return launch_by_rows<MlaAbsorbQueryArgs>(
        kName, kKernels, args, blocks_for(args.dims.rank, kTileCols), shared_bytes, stream);
}

Status mla_expand_values(const MlaExpandValuesArgs& args, CudaStream stream) {
    constexpr const char* kName = "mla_expand_values";
    K3POD_TRY(check_mla_dims(kName, args.dims));
    K3POD_TRY(check_kv_b(kName, args.dims, args.kv_b));
    K3POD_TRY(require(args.rows >= 0, kName, "rows", args.rows, "at least 0"));
    if (args.rows == 0) return Status::ok();
    MlaExpandValuesArgs full = args;
    if (full.g_stride == 0) full.g_stride = int64_t{args.dims.heads} * args.dims.value;
    static constexpr void (*kKernels[2][2])(MlaExpandValuesArgs) = {
        {expand_kernel<1, false>, expand_kernel<1, true>},
        {expand_kernel<kTileRows, false>, expand_kernel<kTileRows, true>}};
    const auto shared_bytes = [](const MlaDims& dims, int rows) {
        return int64_t{rows} * dims.rank * int64_t{sizeof(float)};
    };
    return launch_by_rows<MlaExpandValuesArgs>(
        kName, kKernels, full, blocks_for(args.dims.value, kTileValues), shared_bytes, stream);
}

}  // namespace k3pod::kernels

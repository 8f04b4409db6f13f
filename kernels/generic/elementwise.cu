#include "k3pod/kernels/elementwise.h"

#include "common/block.cuh"
#include "common/launch.cuh"
#include "common/require.h"
#include "common/vectors.cuh"

namespace k3pod::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void situ_kernel(SituArgs args) {
    wait_for_previous();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= args.width) return;
    const int64_t in = blockIdx.y * args.input_stride + i;
    const int64_t out = int64_t{blockIdx.y} * args.width + i;
    const float gate = args.gate[in];
    const float up = args.up[in];
    const float limited_gate = args.beta * tanhf(gate / args.beta);
    const float limited_up = args.linear_beta * tanhf(up / args.linear_beta);
    const Floats<1> y{limited_gate * sigmoid(gate) * limited_up};
    store_outputs(args.y, args.y_bf16, out, y);
}

struct Add {
    __device__ void operator()(const float* x, float* y) const { *y += *x; }
};
struct Sigmoid {
    __device__ void operator()(const float* x, float* y) const { *y = sigmoid(*x); }
};
struct Silu {
    __device__ void operator()(const float* x, float* y) const { *y = silu(*x); }
};
struct ToBf16 {
    __device__ void operator()(const float* x, Bf16* y) const { *y = round_to_bf16(*x); }
};
struct ToF32 {
    __device__ void operator()(const Bf16* x, float* y) const { *y = widen(*x); }
};

template <class Op, class X, class Y>
__global__ void map_kernel(const X* x, Y* y, int64_t count) {
    wait_for_previous();
    const int64_t stride = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
        Op()(x + i, y + i);
    }
}

template <class Op, class X, class Y>
Status map(const char* name, const X* x, Y* y, int64_t count, CudaStream stream) {
    K3POD_TRY(require(count >= 0, name, "count", count, "at least 0"));
    if (count == 0) return Status::ok();
    constexpr int64_t kMostBlocks = 4096;
    const LaunchShape shape{
        .grid = static_cast<unsigned>(min(int64_t{blocks_for(count, kThreads)}, kMostBlocks)),
        .block = kThreads,
        .overlaps_previous = true};
    return launch(name, map_kernel<Op, X, Y>, shape, stream, x, y, count);
}

__global__ void embed_kernel(EmbedArgs args) {
    wait_for_previous();
    const int32_t width = args.table.cols;
    const int32_t id = args.ids[blockIdx.x];
    const bool is_known = id >= 0 && id < args.table.rows;
    const int64_t from = int64_t{id} * width;
    const auto* f32 = reinterpret_cast<const float*>(args.table.data);
    const auto* bf16 = reinterpret_cast<const Bf16*>(args.table.data);
    float* out = args.out + int64_t{blockIdx.x} * width;
    for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
        float value = 0;
        if (is_known) {
            value = args.table.format == WeightFormat::kF32 ? f32[from + i] : widen(bf16[from + i]);
        }
        out[i] = value;
    }
}

struct CombineParts {
    CombinePart at[kMaxCombineParts];
    int32_t count;
};

// Which of the part's rows adds to `row`, in every thread; -1: none.
__device__ int find_row(const CombinePart& part, int row, int* found) {
    if (part.rows == nullptr) return row;
    __syncthreads();  // everybody has read the last answer
    if (threadIdx.x == 0) *found = -1;
    __syncthreads();
    const int count = *part.num_rows;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        if (part.rows[i] == row) *found = i;
    }
    __syncthreads();
    return *found;
}

// One block a row. Sums pass through `out`, each column in one thread.
__global__ void combine_kernel(CombineArgs args, CombineParts parts) {
    __shared__ float scratch[kWarpSize];
    __shared__ int found;
    wait_for_previous();
    const int first = static_cast<int>(threadIdx.x);
    const int step = static_cast<int>(blockDim.x);
    float* out = args.out + int64_t{blockIdx.x} * args.latent;
    for (int i = first; i < args.latent; i += step) out[i] = 0;
    for (int p = 0; p < parts.count; ++p) {
        const CombinePart& part = parts.at[p];
        const int row = find_row(part, static_cast<int>(blockIdx.x), &found);
        if (row < 0) continue;
        const int64_t from = int64_t{row} * args.latent;
        for (int i = first; i < args.latent; i += step) {
            out[i] += part.f32 != nullptr ? part.f32[from + i] : widen(part.bf16[from + i]);
        }
    }
    if (args.norm_weight == nullptr) return;
    float squares = 0;
    for (int i = first; i < args.latent; i += step) squares = fmaf(out[i], out[i], squares);
    const float mean = sum_block(squares, scratch) / static_cast<float>(args.latent);
    const float scale = 1.0f / sqrtf(mean + args.norm_eps);
    for (int i = first; i < args.latent; i += step) out[i] = args.norm_weight[i] * (out[i] * scale);
}

}  // namespace

Status situ(const SituArgs& args, CudaStream stream) {
    constexpr const char* kName = "situ";
    K3POD_TRY(
        require(args.rows >= 0 && args.rows <= 65535, kName, "rows", args.rows, "in [0, 65535]"));
    K3POD_TRY(require(args.input_stride == 0 || args.input_stride >= args.width, kName,
                      "input_stride", args.input_stride, "0 or at least width"));
    if (args.rows == 0 || args.width == 0) return Status::ok();
    SituArgs full = args;
    if (full.input_stride == 0) full.input_stride = args.width;
    const LaunchShape shape{
        .grid = dim3(blocks_for(args.width, kThreads), static_cast<unsigned>(args.rows)),
        .block = kThreads,
        .overlaps_previous = true};
    return launch(kName, situ_kernel, shape, stream, full);
}

Status add(const float* x, float* y, int64_t count, CudaStream stream) {
    return map<Add>("add", x, y, count, stream);
}
Status sigmoid(const float* x, float* y, int64_t count, CudaStream stream) {
    return map<Sigmoid>("sigmoid", x, y, count, stream);
}
Status silu(const float* x, float* y, int64_t count, CudaStream stream) {
    return map<Silu>("silu", x, y, count, stream);
}
Status to_bf16(const float* x, Bf16* y, int64_t count, CudaStream stream) {
    return map<ToBf16>("to_bf16", x, y, count, stream);
}
Status to_f32(const Bf16* x, float* y, int64_t count, CudaStream stream) {
    return map<ToF32>("to_f32", x, y, count, stream);
}

Status embed(const EmbedArgs& args, CudaStream stream) {
    constexpr const char* kName = "embed";
    const WeightFormat format = args.table.format;
    K3POD_TRY(require(format == WeightFormat::kF32 || format == WeightFormat::kBf16, kName,
                      "the table's format", static_cast<int64_t>(format), "f32 or bf16"));
    K3POD_TRY(require(args.rows >= 0, kName, "rows", args.rows, "at least 0"));
    if (args.rows == 0) return Status::ok();
    const LaunchShape shape{.grid = static_cast<unsigned>(args.rows),
                            .block = block_size_for(args.table.cols, 1024),
                            .overlaps_previous = true};
    return launch(kName, embed_kernel, shape, stream, args);
}

Status combine(const CombineArgs& args, CudaStream stream) {
    constexpr const char* kName = "combine";
    CombineParts parts = {};
    parts.count = static_cast<int32_t>(args.parts.size());
    K3POD_TRY(require(parts.count <= kMaxCombineParts, kName, "the number of parts", parts.count,
                      "at most 16"));
    K3POD_TRY(require(args.rows >= 0 && args.latent > 0, kName, "rows", args.rows, "at least 0"));
    for (int32_t p = 0; p < parts.count; ++p) {
        const CombinePart& part = parts.at[p] = args.parts[static_cast<size_t>(p)];
        K3POD_TRY(require((part.f32 == nullptr) != (part.bf16 == nullptr), kName, "a part", p,
                          "either f32 or bf16"));
        K3POD_TRY(require((part.rows == nullptr) == (part.num_rows == nullptr), kName, "a part", p,
                          "with both rows and num_rows, or neither"));
    }
    if (args.rows == 0) return Status::ok();
    const LaunchShape shape{.grid = static_cast<unsigned>(args.rows),
                            .block = block_size_for(args.latent, 1024),
                            .overlaps_previous = true};
    return launch(kName, combine_kernel, shape, stream, args, parts);
}

}  // namespace k3pod::kernels

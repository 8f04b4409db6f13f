// One token of each sequence: one block for a head of a sequence. The head's whole state is in
// flight before the first of its inputs is there, which is what the time is made of: 64 KiB in and
// out for each head of K3.

#include "common/launch.cuh"
#include "generic/kda.cuh"
#include "generic/kda_parts.h"

namespace k3pod::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kRowGroups = kThreads / kLanesPerRow;
constexpr int kRowsPerThread = kMaxHeadDim / kRowGroups;
static_assert(kThreads == kPrepareThreads + kMaxHeadDim);  // the last ones have the gate

__device__ void advance_windows(const KdaArgs& args, int head, const KdaChunkRow& at) {
    const int dim = args.shape.head_dim;
    const int role = static_cast<int>(threadIdx.x) / kMaxHeadDim;
    const int d = static_cast<int>(threadIdx.x) % kMaxHeadDim;
    if (d >= dim) return;
    const int c = head * dim + d;
    // The thread that convolved a channel advances it.
    if (role == 0) {
        advance_window(args, args.in.q, 0, at, c);
        advance_window(args, args.in.k, 1, at, c);
    } else if (role == 1) {
        advance_window(args, args.in.v, 2, at, c);
    }
}

__global__ void __launch_bounds__(kThreads, 2) kda_decode_kernel(KdaArgs args) {
    __shared__ HeadInputs inputs;
    __shared__ float o[kMaxHeadDim];
    __shared__ float gates[kMaxHeadDim];
    wait_for_previous();
    const int head = static_cast<int>(blockIdx.x);
    const int chunk = static_cast<int>(blockIdx.y);
    // All three before the first is waited for: padding needs no slot, but asking costs nothing.
    const int num_rows = args.chunks.num_rows[chunk];
    const KdaChunkRow at{args.chunks.slots[chunk], args.chunks.first_row[chunk], 0};
    if ((num_rows == 0) | (at.slot < 0) | (at.row < 0)) return;
    const int dim = args.shape.head_dim;
    float* state =
        args.state.recurrent + at.slot * args.state.recurrent_stride + int64_t{head} * dim * dim;

    const int first = static_cast<int>(threadIdx.x) / kLanesPerRow;
    RowPart rows[kRowsPerThread] = {};
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
        const int v = first + r * kRowGroups;
        if (v < dim) rows[r] = load_part(state + v * dim, dim);
    }
    if (threadIdx.x >= kPrepareThreads) {
        const int d = static_cast<int>(threadIdx.x) - kPrepareThreads;
        gates[d] = gate_of(args, head, at.row, d);
    }
    const HeadScalars scalars = prepare_head(args, head, at, inputs);
    float v[kRowsPerThread], out[kRowsPerThread];
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) v[r] = inputs.v[min(first + r * kRowGroups, dim - 1)];
    const TokenRows token{inputs.q, inputs.k, inputs.decay, scalars.q_scale, scalars.k_scale};
    step_rows<kRowsPerThread>(token, dim, scalars.beta, scalars.kq, v, rows, out);
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
        const int row = first + r * kRowGroups;
        if (row >= dim) continue;
        store_part(state + row * dim, dim, rows[r]);
        if (lane_idx() % kLanesPerRow == 0) o[row] = out[r];
    }
    advance_windows(args, head, at);
    __syncthreads();
    write_gated_norm(args, head, at.row, o, gates[threadIdx.x % kMaxHeadDim]);
}

}  // namespace

Status kda_decode(const KdaArgs& args, CudaStream stream) {
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.shape.heads),
                                         static_cast<unsigned>(args.chunks.num_chunks)),
                            .block = kThreads,
                            .overlaps_previous = true};
    return launch("kda_decode", kda_decode_kernel, shape, stream, args);
}

}  // namespace k3pod::kernels

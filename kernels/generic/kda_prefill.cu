// Many tokens of each sequence, in three launches: every token's inputs at once; then the delta
// rule, a block for 32 rows of a head's state, which stay in registers over the whole chunk; then
// the norm over each head, whose rows the blocks had split among them.

#include "common/async_copy.cuh"
#include "common/launch.cuh"
#include "generic/kda.cuh"
#include "generic/kda_parts.h"

namespace k3pod::kernels {
namespace {

constexpr int kScanThreads = 256;
constexpr int kScanRows = kScanThreads / kLanesPerRow;
constexpr int kStageTokens = 8;  // fetched at once, one stage ahead

struct Workspace {
    float* q;  // [R, P] normalised, as k
    float* k;
    float* decay;
    float* v;     // [R, P]; becomes the outputs of the rule
    float* kq;    // [R, heads] <k, q>
    float* beta;  // [R, heads]
};

Workspace workspace_of(const KdaArgs& args) {
    const int64_t block = int64_t{args.num_rows} * args.shape.width();
    const int64_t scalars = int64_t{args.num_rows} * args.shape.heads;
    auto* base = reinterpret_cast<float*>(args.workspace);
    return {base,
            base + block,
            base + 2 * block,
            base + 3 * block,
            base + 4 * block,
            base + 4 * block + scalars};
}

__global__ void __launch_bounds__(kPrepareThreads) prepare_kernel(KdaArgs args, Workspace work) {
    __shared__ HeadInputs inputs;
    wait_for_previous();
    const int head = static_cast<int>(blockIdx.x);
    const int t = static_cast<int>(blockIdx.y);
    const int chunk = static_cast<int>(blockIdx.z);
    if (t >= args.chunks.num_rows[chunk]) return;
    const KdaChunkRow at{args.chunks.slots[chunk], args.chunks.first_row[chunk] + t, t};
    const HeadScalars scalars = prepare_head(args, head, at, inputs);
    const int dim = args.shape.head_dim;
    const int d = static_cast<int>(threadIdx.x) % kMaxHeadDim;
    const int role = static_cast<int>(threadIdx.x) / kMaxHeadDim;
    const int64_t to = int64_t{at.row} * args.shape.width() + head * dim + d;
    if (d < dim && role == 0) {
        work.q[to] = inputs.q[d] * scalars.q_scale;
        work.k[to] = inputs.k[d] * scalars.k_scale;
    } else if (d < dim && role == 1) {
        work.v[to] = inputs.v[d];
    } else if (d < dim) {
        work.decay[to] = inputs.decay[d];
    }
    if (threadIdx.x == 0) {
        work.kq[int64_t{at.row} * args.shape.heads + head] = scalars.kq;
        work.beta[int64_t{at.row} * args.shape.heads + head] = scalars.beta;
    }
}

struct alignas(16) Stage {
    float q[kStageTokens][kMaxHeadDim];
    float k[kStageTokens][kMaxHeadDim];
    float decay[kStageTokens][kMaxHeadDim];
    float v[kStageTokens][kScanRows];
    float kq[kStageTokens];
    float beta[kStageTokens];
};

struct Scan {
    KdaArgs args;
    Workspace work;
    int head;
    int row;      // of the inputs, of the chunk's first token
    int count;    // tokens
    int first_v;  // of the block's rows of the state
    int num_v;

    __device__ void copy_rows(const float* from, float* to, int width, int row_width, int first,
                              int n) const {
        const int vecs = width / 4;
        for (int i = static_cast<int>(threadIdx.x); i < n * vecs; i += kScanThreads) {
            const int t = i / vecs;
            const int at = (i - t * vecs) * 4;
            copy_async(to + t * row_width + at,
                       from + int64_t{row + first + t} * args.shape.width() + at, true);
        }
    }

    // Starts copying tokens [first, first + kStageTokens) as far as there are any.
    __device__ void fetch(int first, Stage& stage) const {
        const int n = min(kStageTokens, count - first);
        if (n > 0) {
            const int dim = args.shape.head_dim;
            const int64_t column = int64_t{head} * dim;
            copy_rows(work.q + column, stage.q[0], dim, kMaxHeadDim, first, n);
            copy_rows(work.k + column, stage.k[0], dim, kMaxHeadDim, first, n);
            copy_rows(work.decay + column, stage.decay[0], dim, kMaxHeadDim, first, n);
            copy_rows(work.v + column + first_v, stage.v[0], num_v, kScanRows, first, n);
            const int t = static_cast<int>(threadIdx.x);
            if (t < n) {
                const int64_t at = int64_t{row + first + t} * args.shape.heads + head;
                stage.kq[t] = work.kq[at];
                stage.beta[t] = work.beta[at];
            }
        }
        commit_copies();
    }
};

__device__ void advance_windows(const KdaArgs& args, int head, const KdaChunkRow& last) {
    const int dim = args.shape.head_dim;
    for (int d = static_cast<int>(threadIdx.x); d < dim; d += kScanThreads) {
        const int c = head * dim + d;
        advance_window(args, args.in.q, 0, last, c);
        advance_window(args, args.in.k, 1, last, c);
        advance_window(args, args.in.v, 2, last, c);
    }
}

__global__ void __launch_bounds__(kScanThreads) scan_kernel(KdaArgs args, Workspace work) {
    __shared__ Stage stages[2];
    wait_for_previous();
    const int chunk = static_cast<int>(blockIdx.z);
    const int count = args.chunks.num_rows[chunk];
    if (count == 0) return;
    const int dim = args.shape.head_dim;
    const int head = static_cast<int>(blockIdx.x);
    const int first_v = static_cast<int>(blockIdx.y) * kScanRows;
    const Scan scan{args,
                    work,
                    head,
                    args.chunks.first_row[chunk],
                    count,
                    first_v,
                    min(kScanRows, dim - first_v)};
    const int v_idx = static_cast<int>(threadIdx.x) / kLanesPerRow;
    const bool has_row = v_idx < scan.num_v;
    const int slot = args.chunks.slots[chunk];
    float* state = args.state.recurrent + slot * args.state.recurrent_stride +
                   (int64_t{head} * dim + first_v + v_idx) * dim;
    RowPart part = {};
    if (has_row) part = load_part(state, dim);

    scan.fetch(0, stages[0]);
    for (int first = 0; first < count; first += kStageTokens) {
        const int current = first / kStageTokens % 2;
        scan.fetch(first + kStageTokens, stages[1 - current]);
        wait_for_copies<1>();
        __syncthreads();
        const Stage& stage = stages[current];
        for (int t = 0; t < min(kStageTokens, count - first); ++t) {
            float out;
            const TokenRows token{stage.q[t], stage.k[t], stage.decay[t], 1, 1};
            step_rows<1>(token, dim, stage.beta[t], stage.kq[t], &stage.v[t][v_idx], &part, &out);
            if (has_row && lane_idx() % kLanesPerRow == 0) {
                work.v[int64_t{scan.row + first + t} * args.shape.width() + head * dim + first_v +
                       v_idx] = out;
            }
        }
        __syncthreads();
    }
    if (has_row) store_part(state, dim, part);
    if (blockIdx.y == 0) advance_windows(args, head, {slot, scan.row + count - 1, count - 1});
}

__global__ void __launch_bounds__(kMaxHeadDim) gated_norm_kernel(KdaArgs args, Workspace work) {
    __shared__ float o[kMaxHeadDim];
    wait_for_previous();
    const int head = static_cast<int>(blockIdx.x);
    const int t = static_cast<int>(blockIdx.y);
    const int chunk = static_cast<int>(blockIdx.z);
    if (t >= args.chunks.num_rows[chunk]) return;
    const int row = args.chunks.first_row[chunk] + t;
    const int dim = args.shape.head_dim;
    const int d = static_cast<int>(threadIdx.x);
    if (d < dim) o[d] = work.v[int64_t{row} * args.shape.width() + head * dim + d];
    const float gate = gate_of(args, head, row, d);
    __syncthreads();
    write_gated_norm(args, head, row, o, gate);
}

}  // namespace

Status kda_prefill(const KdaArgs& args, CudaStream stream) {
    const Workspace work = workspace_of(args);
    const auto heads = static_cast<unsigned>(args.shape.heads);
    const auto chunks = static_cast<unsigned>(args.chunks.num_chunks);
    const dim3 tokens(heads, static_cast<unsigned>(args.chunks.max_rows), chunks);
    const dim3 parts(heads, blocks_for(args.shape.head_dim, kScanRows), chunks);
    K3POD_TRY(launch("kda_prepare", prepare_kernel,
                     {.grid = tokens, .block = kPrepareThreads, .overlaps_previous = true}, stream,
                     args, work));
    K3POD_TRY(launch("kda_scan", scan_kernel,
                     {.grid = parts, .block = kScanThreads, .overlaps_previous = true}, stream,
                     args, work));
    return launch("kda_gated_norm", gated_norm_kernel,
                  {.grid = tokens, .block = kMaxHeadDim, .overlaps_previous = true}, stream, args,
                  work);
}

}  // namespace k3pod::kernels

#pragma once
// What decode and prefill share: one head's inputs of one token, and the delta rule on rows of its
// state. Both run the same operations in the same order, so a sequence may be cut anywhere.

#include "common/block.cuh"
#include "common/vectors.cuh"
#include "k3pod/kernels/kda.h"

namespace k3pod::kernels {

inline constexpr int kMaxHeadDim = 128;
inline constexpr int kConvTaps = 4;
// prepare_head() works with this many threads: one per channel for q and k, for v, and for decay.
inline constexpr int kPrepareThreads = 3 * kMaxHeadDim;
inline constexpr int kLanesPerRow = 8;                                 // of the state
inline constexpr int kVecsPerLane = kMaxHeadDim / (4 * kLanesPerRow);  // at most

struct KdaChunkRow {
    int slot;  // of the state
    int row;   // of the inputs
    int t;     // the row's index in its chunk
};

// Input `i` tokens before the row's, at channel c of q, k or v (which = 0, 1, 2).
__device__ inline float earlier_input(const KdaArgs& args, const float* x, int which,
                                      const KdaChunkRow& at, int i, int c) {
    if (at.t >= i) return x[(at.row - i) * args.in.stride + c];
    const float* window = args.state.conv_window + at.slot * args.state.conv_stride;
    const int age = kConvTaps - 1 + at.t - i;
    return window[(which * (kConvTaps - 1) + age) * int64_t{args.shape.width()} + c];
}

// What a channel's convolution reads, apart from what it computes, so that the inputs of several
// channels are on their way together.
struct ConvInputs {
    Floats<4> weights;
    float x[kConvTaps];
};

__device__ inline ConvInputs conv_inputs(const KdaArgs& args, const float* x, int which,
                                         const float* taps, const KdaChunkRow& at, int c) {
    ConvInputs inputs;
    inputs.weights = load<4>(taps + int64_t{c} * kConvTaps);
#pragma unroll
    for (int j = 0; j < kConvTaps; ++j) {
        inputs.x[j] = earlier_input(args, x, which, at, kConvTaps - 1 - j, c);
    }
    return inputs;
}

__device__ inline float convolve(const ConvInputs& inputs) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kConvTaps; ++j) sum = fmaf(inputs.weights.at[j], inputs.x[j], sum);
    return silu(sum);
}

// Leaves the window of channel c with the last three inputs of the chunk, whose last row is `at`.
__device__ inline void advance_window(const KdaArgs& args, const float* x, int which,
                                      const KdaChunkRow& at, int c) {
    float latest[kConvTaps - 1];
#pragma unroll
    for (int i = 0; i < kConvTaps - 1; ++i) {
        latest[i] = earlier_input(args, x, which, at, kConvTaps - 2 - i, c);
    }
    const int64_t width = args.shape.width();
    float* window = args.state.conv_window + at.slot * args.state.conv_stride +
                    which * (kConvTaps - 1) * width + c;
#pragma unroll
    for (int i = 0; i < kConvTaps - 1; ++i) window[i * width] = latest[i];
}

// One head's inputs of one token, in shared memory.
struct HeadInputs {
    float q[kMaxHeadDim];  // convolved; times q_scale they are normalised, as k times k_scale
    float k[kMaxHeadDim];
    float v[kMaxHeadDim];
    float decay[kMaxHeadDim];
    float sums[3][kMaxHeadDim / kWarpSize];  // of q^2, k^2 and qk, by warp
    float beta;
};
struct HeadScalars {
    float q_scale, k_scale;
    float kq;  // <k, q>, normalised
    float beta;
};

__device__ inline float decay_of(const KdaArgs& args, int head, const KdaChunkRow& at, int c) {
    const KdaLayerWeights& weights = args.weights;
    const float f = args.in.f[at.row * args.in.stride + c] + weights.dt_bias[c];
    return expf(weights.lower_bound * sigmoid(expf(weights.a_log[head]) * f));
}

// The first kPrepareThreads threads of the block fill `inputs`; all threads call it.
__device__ inline HeadScalars prepare_head(const KdaArgs& args, int head, const KdaChunkRow& at,
                                           HeadInputs& inputs) {
    const int dim = args.shape.head_dim;
    const int role = static_cast<int>(threadIdx.x) / kMaxHeadDim;
    const int d = static_cast<int>(threadIdx.x) % kMaxHeadDim;
    const int c = head * dim + d;
    if (role == 0) {
        float q = 0, k = 0;
        if (d < dim) {
            const auto of_q = conv_inputs(args, args.in.q, 0, args.weights.q_conv, at, c);
            const auto of_k = conv_inputs(args, args.in.k, 1, args.weights.k_conv, at, c);
            q = convolve(of_q);
            k = convolve(of_k);
            inputs.q[d] = q;
            inputs.k[d] = k;
        }
        const float qq = sum_lanes(q * q), kk = sum_lanes(k * k), qk = sum_lanes(q * k);
        if (lane_idx() == 0) {
            inputs.sums[0][warp_idx()] = qq;
            inputs.sums[1][warp_idx()] = kk;
            inputs.sums[2][warp_idx()] = qk;
        }
    } else if (role == 1 && d < dim) {
        inputs.v[d] = convolve(conv_inputs(args, args.in.v, 2, args.weights.v_conv, at, c));
    } else if (role == 2) {
        if (d < dim) inputs.decay[d] = decay_of(args, head, at, c);
        if (d == 0) inputs.beta = sigmoid(args.in.b[at.row * args.in.b_stride + head]);
    }
    __syncthreads();
    float sums[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        const float* s = inputs.sums[i];
        sums[i] = (s[0] + s[1]) + (s[2] + s[3]);
    }
    HeadScalars scalars;
    scalars.q_scale =
        1.0f / (sqrtf(static_cast<float>(dim)) * sqrtf(sums[0] + args.weights.l2_eps));
    scalars.k_scale = 1.0f / sqrtf(sums[1] + args.weights.l2_eps);
    scalars.kq = sums[2] * scalars.q_scale * scalars.k_scale;
    scalars.beta = inputs.beta;
    return scalars;
}

// A thread's columns of a row of the state, or of q, k, decay: kLanesPerRow neighbouring lanes
// share a row, 16 bytes each in turn.
struct RowPart {
    Floats<4> at[kVecsPerLane];
};

__device__ inline int column_of(int vec) {
    return (vec * kLanesPerRow + lane_idx() % kLanesPerRow) * 4;
}

__device__ inline RowPart load_part(const float* row, int dim) {
    RowPart part;
#pragma unroll
    for (int j = 0; j < kVecsPerLane; ++j) {
        part.at[j] = column_of(j) < dim ? load<4>(row + column_of(j)) : Floats<4>{};
    }
    return part;
}

__device__ inline void store_part(float* row, int dim, const RowPart& part) {
#pragma unroll
    for (int j = 0; j < kVecsPerLane; ++j) {
        if (column_of(j) < dim) store(row + column_of(j), part.at[j]);
    }
}

__device__ inline Floats<4> times(const Floats<4>& v, float factor) {
    return {v.at[0] * factor, v.at[1] * factor, v.at[2] * factor, v.at[3] * factor};
}

// One token's q, k and decay in shared memory as the rule wants them, whoever scaled q and k.
struct TokenRows {
    const float* q;
    const float* k;
    const float* decay;
    float q_scale;  // 1 when already normalised
    float k_scale;
};

// One token on kRows rows of the state, with v[r] the value of row r. With S' the decayed state,
// o = S'q + u <k, q>, so one pass over S' gives both products. out[r] is the same in all lanes of a
// row.
template <int kRows>
__device__ inline void step_rows(const TokenRows& token, int dim, float beta, float kq,
                                 const float* v, RowPart* state, float* out) {
    Floats<4> by_k[kRows] = {};
    Floats<4> by_q[kRows] = {};
#pragma unroll
    for (int j = 0; j < kVecsPerLane; ++j) {
        if (column_of(j) >= dim) continue;
        const auto decay = load<4>(token.decay + column_of(j));
        const auto k = times(load<4>(token.k + column_of(j)), token.k_scale);
        const auto q = times(load<4>(token.q + column_of(j)), token.q_scale);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& s = state[r].at[j].at[i];
                s *= decay.at[i];
                by_k[r].at[i] = fmaf(s, k.at[i], by_k[r].at[i]);
                by_q[r].at[i] = fmaf(s, q.at[i], by_q[r].at[i]);
            }
        }
    }
    float u[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const auto total = [](const Floats<4>& p) {
            return (p.at[0] + p.at[1]) + (p.at[2] + p.at[3]);
        };
        u[r] = beta * (v[r] - sum_lanes<kLanesPerRow>(total(by_k[r])));
        out[r] = fmaf(u[r], kq, sum_lanes<kLanesPerRow>(total(by_q[r])));
    }
#pragma unroll
    for (int j = 0; j < kVecsPerLane; ++j) {
        if (column_of(j) >= dim) continue;
        const auto k = times(load<4>(token.k + column_of(j)), token.k_scale);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                state[r].at[j].at[i] = fmaf(u[r], k.at[i], state[r].at[j].at[i]);
            }
        }
    }
}

// The gated norm's weight of channel d of a head: o_norm times sigmoid(g).
__device__ inline float gate_of(const KdaArgs& args, int head, int row, int d) {
    const int dim = args.shape.head_dim;
    if (d >= dim) return 0;
    return args.weights.o_norm[d] * sigmoid(args.in.g[row * args.in.stride + head * dim + d]);
}

// y = RMSNorm over the head's outputs o[D] (shared memory), times the thread's gate. Threads [0, D)
// of a block of whole warps write; all warps of the block may call it.
__device__ inline void write_gated_norm(const KdaArgs& args, int head, int row, const float* o,
                                        float gate) {
    const int dim = args.shape.head_dim;
    float squares = 0;
    for (int d = lane_idx(); d < dim; d += kWarpSize) squares = fmaf(o[d], o[d], squares);
    const float mean = sum_lanes(squares) / static_cast<float>(dim);
    const float scale = 1.0f / sqrtf(mean + args.weights.norm_eps);
    const int d = static_cast<int>(threadIdx.x);
    if (d >= dim) return;
    const int c = head * dim + d;
    const Floats<1> y{o[d] * scale * gate};
    store_outputs(args.y, args.y_bf16, int64_t{row} * args.shape.width() + c, y);
}

}  // namespace k3pod::kernels

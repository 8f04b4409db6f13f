#pragma once
// Kimi Delta Attention between its projections: short convolution, normalisation, gate, the delta
// rule and the gated norm. Channel c = head * D + d; P = heads * D. Everything fp32 and in device
// memory.

#include <cstddef>
#include <cstdint>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/kernels/step_chunks.h"

namespace k3pod::kernels {

struct KdaShape {
    int32_t heads = 0;
    int32_t head_dim = 0;  // D: a multiple of 16, at most 128
    constexpr int32_t width() const { return heads * head_dim; }
};

struct KdaLayerWeights {
    const float* q_conv = nullptr;  // [P, 4] each; tap 3 is the current token
    const float* k_conv = nullptr;
    const float* v_conv = nullptr;
    const float* a_log = nullptr;    // [heads]
    const float* dt_bias = nullptr;  // [P]
    const float* o_norm = nullptr;   // [D]
    float lower_bound = 0;           // of the log decay, -5 in the release
    float l2_eps = 0;                // inside the root, on the sum of squares
    float norm_eps = 0;
};

// State of one layer, slot s at base + s * stride (in floats).
struct KdaLayerState {
    float* recurrent = nullptr;  // [heads, D(v), D(k)]
    int64_t recurrent_stride = 0;
    float* conv_window = nullptr;  // [3 (q, k, v), 3, P] pre-conv, oldest first
    int64_t conv_stride = 0;
};

// Outputs of the projections, row r at base + r * stride (in floats); a stride of 0 is the width.
struct KdaInputs {
    const float* q = nullptr;  // [R, P] before the convolution, as k and v
    const float* k = nullptr;
    const float* v = nullptr;
    const float* f = nullptr;  // [R, P] decay
    const float* g = nullptr;  // [R, P] output gate
    int64_t stride = 0;        // of q, k, v, f and g
    const float* b = nullptr;  // [R, heads] before its sigmoid
    int64_t b_stride = 0;
};

struct KdaArgs {
    KdaShape shape;
    StepChunks chunks;
    KdaLayerWeights weights;
    KdaInputs in;
    KdaLayerState state;  // read and advanced by the rows of each chunk
    // At least one of the two, both [R, P]: input of o_proj.
    float* y = nullptr;
    Bf16* y_bf16 = nullptr;
    // kda_workspace_bytes(), aligned to 256; null when chunks.max_rows is 1.
    std::byte* workspace = nullptr;
    int32_t num_rows = 0;  // R: rows of the inputs and of the workspace
};

// 0 for steps with one row a chunk.
int64_t kda_workspace_bytes(const KdaShape& shape, int32_t max_rows, int32_t num_rows);

// One launch when chunks.max_rows is 1 (decode); a few otherwise. Per token:
//   q, k, v = SiLU(conv4(.)); k = k / sqrt(sum(k^2) + l2_eps), q likewise and times D^-0.5
//   decay = exp(lower_bound * sigmoid(exp(a_log) * (f + dt_bias))); beta = sigmoid(b)
//   S <- S * decay[k]; u = beta * (v - S k); S <- S + u k^T; o = S q
//   y = RMSNorm_D(o) * o_norm * sigmoid(g)
// A row's bits depend on its sequence alone, not on where the sequence was cut into chunks.
Status kda(const KdaArgs& args, CudaStream stream);

}  // namespace k3pod::kernels

#pragma once
// Kimi Delta Attention, piece by piece. Channel c = head * D + d; P = heads * D. All fp32.
// A forward pass calls, after the projections:
//   kda_short_conv (q, k, v each) -> kda_normalize_qk -> kda_gate, kda_beta -> kda_recurrence
//   -> kda_gated_norm

#include <cstdint>
#include <span>

namespace k3pod::ops {

inline constexpr int32_t kKdaConvKernel = 4;
inline constexpr int32_t kKdaChunk = 16;  // bounds the summed log decay of a chunk by 80

// y[t, c] = SiLU(sum_j weight[c, j] * u[t - 3 + j, c]), causal and depthwise; u before the first
// token comes from the window, which is left holding the last three u.
struct KdaShortConvArgs {
    int32_t tokens = 0;
    std::span<const float> weight;  // [P, 4], tap 3 is the current token
    std::span<const float> x;       // [T, P] pre-conv projection
    std::span<float> window;        // [3, P] pre-conv, oldest first; zeros for a new sequence
    std::span<float> y;             // [T, P]; may be x
};
void kda_short_conv(const KdaShortConvArgs& args);

// In place, per head: k = k / sqrt(sum(k^2) + eps), q likewise and times D^-0.5. eps is inside the
// root and on the SUM of squares.
void kda_normalize_qk(int32_t head_dim, float eps, std::span<float> q,  // [T, heads, D]
                      std::span<float> k);                              // [T, heads, D]

// log_decay = lower_bound * sigmoid(exp(a_log[h]) * (f + dt_bias)), so in (lower_bound, 0).
struct KdaGateArgs {
    int32_t tokens = 0;
    std::span<const float> f;        // [T, P]
    std::span<const float> a_log;    // [heads]
    std::span<const float> dt_bias;  // [P]
    float lower_bound = 0;           // -5 in the release; at least -5, which bounds a chunk
    std::span<float> log_decay;      // [T, P]; may be f
};
void kda_gate(const KdaGateArgs& args);

// beta = sigmoid(b), in place. [T, heads]
void kda_beta(std::span<float> beta);

// The delta rule over T tokens of one sequence, per head with state S[v][k]:
//   S <- S * exp(log_decay)[k];  u = beta * (v - S k);  S <- S + u k^T;  o = S q
// Tokens are taken in chunks of kKdaChunk counted from the first; a chunk of one token is a plain
// step, a longer one uses the chunked form, equal up to fp32 rounding. So a sequence cut at
// multiples of kKdaChunk gives the same bits as one whole.
struct KdaRecurrenceArgs {
    int32_t tokens = 0;
    int32_t heads = 0;
    int32_t head_dim = 0;              // D: a multiple of 16, at most 128
    std::span<const float> q, k, v;    // [T, heads, D]; q, k normalised
    std::span<const float> log_decay;  // [T, heads, D] in [-5, 0], per key channel
    std::span<const float> beta;       // [T, heads]
    std::span<float> state;            // [heads, D(v), D(k)], read and updated
    std::span<float> out;              // [T, heads, D]; may be v
};
void kda_recurrence(const KdaRecurrenceArgs& args);

// y = RMSNorm over each head's D of o, times sigmoid(g).
struct KdaGatedNormArgs {
    int32_t tokens = 0;
    std::span<const float> o;       // [T, heads, D]
    std::span<const float> g;       // [T, heads, D]
    std::span<const float> weight;  // [D], shared by the heads
    float eps = 0;
    std::span<float> y;  // [T, heads, D]; may be o
};
void kda_gated_norm(const KdaGatedNormArgs& args);

}  // namespace k3pod::ops

#include "model/kda.h"

#include <algorithm>

#include "k3pod/ops/kda.h"
#include "k3pod/ops/linear.h"

namespace k3pod {

static_assert(kPrefillAlignment == ops::kKdaChunk);

KdaAttention::KdaAttention(const ModelConfig& config, StateStore& state, int32_t max_rows)
    : heads_(config.kda_num_heads),
      head_dim_(config.kda_head_dim),
      width_(config.kda_width()),
      gate_lower_bound_(config.gate_lower_bound),
      eps_(config.rms_norm_eps),
      state_(state),
      q_(max_rows, width_),
      k_(max_rows, width_),
      v_(max_rows, width_),
      bottleneck_(max_rows, head_dim_),
      log_decay_(max_rows, width_),
      gate_(max_rows, width_),
      beta_(max_rows, heads_) {}

void KdaAttention::forward(const KdaWeights& weights, int32_t kda_layer, const StepRows& rows,
                           std::span<const float> x, std::span<float> y) {
    const int32_t tokens = rows.count();
    project(weights, tokens, x);
    for (const ChunkRows& chunk : rows.chunks()) convolve(weights, kda_layer, chunk);
    ops::kda_normalize_qk(head_dim_, kKdaL2NormEps, q_.rows(tokens), k_.rows(tokens));
    for (const ChunkRows& chunk : rows.chunks()) recur(kda_layer, chunk);
    ops::kda_gated_norm({.tokens = tokens,
                         .o = v_.rows(tokens),
                         .g = gate_.rows(tokens),
                         .weight = weights.o_norm,
                         .eps = eps_,
                         .y = v_.rows(tokens)});
    ops::linear(weights.o_proj.view(), tokens, v_.rows(tokens), y);
}

void KdaAttention::project(const KdaWeights& weights, int32_t tokens, std::span<const float> x) {
    ops::linear(weights.q_proj.view(), tokens, x, q_.rows(tokens));
    ops::linear(weights.k_proj.view(), tokens, x, k_.rows(tokens));
    ops::linear(weights.v_proj.view(), tokens, x, v_.rows(tokens));
    ops::linear(weights.g_proj.view(), tokens, x, gate_.rows(tokens));

    ops::linear(weights.f_a_proj.view(), tokens, x, bottleneck_.rows(tokens));
    ops::linear(weights.f_b_proj.view(), tokens, bottleneck_.rows(tokens), log_decay_.rows(tokens));
    ops::kda_gate({.tokens = tokens,
                   .f = log_decay_.rows(tokens),
                   .a_log = weights.a_log,
                   .dt_bias = weights.dt_bias,
                   .lower_bound = gate_lower_bound_,
                   .log_decay = log_decay_.rows(tokens)});

    ops::linear(weights.b_proj.view(), tokens, x, beta_.rows(tokens));
    ops::kda_beta(beta_.rows(tokens));
}

void KdaAttention::convolve(const KdaWeights& weights, int32_t kda_layer, const ChunkRows& chunk) {
    // [3 (q, k, v), kernel - 1, P]
    const std::span<float> windows = state_.conv_window(kda_layer, chunk.chunk->state->slot);
    const int32_t window_rows = ops::kKdaConvKernel - 1;
    const int32_t end = chunk.rows.begin + chunk.rows.count;
    const auto convolve_one = [&](int32_t which, const Vector& weight, RowBuffer& buffer) {
        const std::span<float> rows = rows_of(buffer.rows(end), chunk.rows, width_);
        ops::kda_short_conv({.tokens = chunk.rows.count,
                             .weight = weight,
                             .x = rows,
                             .window = rows_of(windows, {which * window_rows, window_rows}, width_),
                             .y = rows});
    };
    convolve_one(0, weights.q_conv, q_);
    convolve_one(1, weights.k_conv, k_);
    convolve_one(2, weights.v_conv, v_);
}

void KdaAttention::recur(int32_t kda_layer, const ChunkRows& chunk) {
    const std::span<float> state = state_.recurrent(kda_layer, chunk.chunk->state->slot);
    // The op counts its chunks from the first token it is given. Steps up to the next multiple make
    // them lie at absolute positions, wherever this chunk begins.
    const int32_t into_chunk = chunk.chunk->position % ops::kKdaChunk;
    const int32_t steps =
        into_chunk == 0 ? 0 : std::min(ops::kKdaChunk - into_chunk, chunk.rows.count);
    for (int32_t t = 0; t < steps; ++t) recur_rows({chunk.rows.begin + t, 1}, state);
    if (steps < chunk.rows.count) {
        recur_rows({chunk.rows.begin + steps, chunk.rows.count - steps}, state);
    }
}

void KdaAttention::recur_rows(RowRange rows, std::span<float> state) {
    const int32_t end = rows.begin + rows.count;
    const auto part = [&](RowBuffer& buffer) {
        return rows_of(buffer.rows(end), rows, buffer.width());
    };
    ops::kda_recurrence({.tokens = rows.count,
                         .heads = heads_,
                         .head_dim = head_dim_,
                         .q = part(q_),
                         .k = part(k_),
                         .v = part(v_),
                         .log_decay = part(log_decay_),
                         .beta = part(beta_),
                         .state = state,
                         .out = part(v_)});
}

}  // namespace k3pod

#include "model/mla.h"

#include <cmath>

#include "k3pod/ops/linear.h"
#include "k3pod/ops/rms_norm.h"

namespace k3pod {

static_assert(kPageTokens % ops::kMlaBlockTokens == 0);

MlaAttention::MlaAttention(const ModelConfig& config, StateStore& state, int32_t max_rows)
    : shape_{.heads = config.num_heads,
             .nope = config.qk_nope_head_dim,
             .rope = config.qk_rope_head_dim,
             .value = config.v_head_dim,
             .rank = config.kv_lora_rank},
      scale_(1.0f / std::sqrt(static_cast<float>(shape_.query_width()))),
      state_(state),
      low_rank_q_(max_rows, config.q_lora_rank),
      q_(max_rows, shape_.heads * shape_.query_width()),
      kv_(max_rows, shape_.cache_width()),
      latent_q_(max_rows, shape_.heads * shape_.cache_width()),
      latent_out_(max_rows, shape_.heads * shape_.rank),
      o_(max_rows, shape_.heads * shape_.value),
      gate_(max_rows, shape_.heads * shape_.value) {
    pages_.reserve(static_cast<size_t>(state.shape().num_pages));
    read_pages_.reserve(static_cast<size_t>(state.shape().num_pages));
}

void MlaAttention::forward(const MlaWeights& weights, int32_t mla_layer, const StepRows& rows,
                           std::span<const float> x, std::span<float> y) {
    const int32_t tokens = rows.count();
    project(weights, tokens, x);
    ops::mla_absorb_query({.shape = shape_,
                           .tokens = tokens,
                           .kv_b = weights.kv_b_proj.view(),
                           .q = q_.rows(tokens),
                           .latent_q = latent_q_.rows(tokens)});
    for (const ChunkRows& chunk : rows.chunks()) attend(weights, mla_layer, chunk);
    ops::mla_expand_values({.shape = shape_,
                            .tokens = tokens,
                            .kv_b = weights.kv_b_proj.view(),
                            .latent_out = latent_out_.rows(tokens),
                            .o = o_.rows(tokens)});
    ops::mla_output_gate(gate_.rows(tokens), o_.rows(tokens));
    ops::linear(weights.o_proj.view(), tokens, o_.rows(tokens), y);
}

void MlaAttention::project(const MlaWeights& weights, int32_t tokens, std::span<const float> x) {
    const std::span<float> low_rank = low_rank_q_.rows(tokens);
    ops::linear(weights.q_a_proj.view(), tokens, x, low_rank);
    ops::rms_norm(tokens, weights.q_a_norm, kMlaLowRankNormEps, low_rank, low_rank);
    ops::linear(weights.q_b_proj.view(), tokens, low_rank, q_.rows(tokens));
    ops::linear(weights.kv_a_proj.view(), tokens, x, kv_.rows(tokens));
    ops::linear(weights.g_proj.view(), tokens, x, gate_.rows(tokens));
}

void MlaAttention::attend(const MlaWeights& weights, int32_t mla_layer, const ChunkRows& chunk) {
    const int32_t position = chunk.chunk->position;
    const int32_t end = chunk.rows.begin + chunk.rows.count;
    const auto part = [&](RowBuffer& buffer) {
        return rows_of(buffer.rows(end), chunk.rows, buffer.width());
    };
    collect_pages(mla_layer, *chunk.chunk->state, position + chunk.rows.count);
    ops::mla_write_latents({.shape = shape_,
                            .tokens = chunk.rows.count,
                            .position = position,
                            .kv = part(kv_),
                            .norm_weight = weights.kv_a_norm,
                            .eps = kMlaLowRankNormEps,
                            .cache = {.pages = pages_, .page_tokens = kPageTokens}});
    ops::mla_attend({.shape = shape_,
                     .tokens = chunk.rows.count,
                     .position = position,
                     .latent_q = part(latent_q_),
                     .scale = scale_,
                     .cache = {.pages = read_pages_, .page_tokens = kPageTokens},
                     .latent_out = part(latent_out_)});
}

void MlaAttention::collect_pages(int32_t mla_layer, const SequenceState& state, int32_t tokens) {
    const auto needed = static_cast<size_t>(StateStore::pages_for(tokens));
    pages_.clear();
    read_pages_.clear();
    for (const int32_t page : std::span(state.pages).first(needed)) {
        pages_.push_back(state_.page(mla_layer, page));
        read_pages_.push_back(pages_.back());
    }
}

}  // namespace k3pod

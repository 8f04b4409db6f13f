#include "model/forward.h"

#include "k3pod/ops/embedding.h"
#include "k3pod/ops/linear.h"
#include "model/check_arguments.h"

namespace k3pod {

ForwardPass::ForwardPass(const ModelConfig& config, const StationWeights& weights,
                         StateStore& state, int32_t max_rows)
    : config_(config),
      weights_(weights),
      index_in_kind_(count_per_kind(config)),
      rows_(max_rows, config.vocab, state.shape().num_slots),
      stream_(config, max_rows),
      kda_(config, state, max_rows),
      mla_(config, state, max_rows),
      dense_(config, config.intermediate, max_rows),
      moe_(config, max_rows),
      x_(max_rows, config.hidden),
      y_(max_rows, config.hidden) {}

Status ForwardPass::forward(const ModelStep& step, ExpertPort& experts, std::span<float> logits,
                            ForwardProbe* probe) {
    K3POD_TRY(rows_.assign(step));
    K3POD_TRY(check_logits(logits, rows_.num_logits(), config_.vocab));
    if (rows_.count() == 0) return Status::ok();

    embed();
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
        attention(layer);
        K3POD_TRY(mlp({.step = step.step,
                       .layer = layer,
                       .tokens = rows_.count(),
                       .experts = &experts,
                       .probe = probe}));
        if (probe != nullptr) probe->on_layer(layer, stream_.accumulator());
    }
    head(logits);
    return Status::ok();
}

void ForwardPass::embed() {
    const std::span<float> accumulator = stream_.begin(rows_.count());
    for (const ChunkRows& chunk : rows_.chunks()) {
        ops::embed(weights_.embed.view(), chunk.chunk->ids,
                   rows_of(accumulator, chunk.rows, config_.hidden));
    }
}

void ForwardPass::attention(int32_t layer) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    const int32_t index = index_in_kind_[static_cast<size_t>(layer)];
    const std::span<float> x = x_.rows(rows_.count());
    const std::span<float> y = y_.rows(rows_.count());

    stream_.mix_and_norm(rows_.all(), weights.attention_mixer, weights.input_norm, x);
    // Behind the mix: this layer still reads the accumulator that it freezes.
    if (layer % config_.attn_res_block == 0) stream_.freeze();
    switch (config_.attention[static_cast<size_t>(layer)]) {
        case AttentionKind::kKda:
            kda_.forward(weights.kda, index, rows_, x, y);
            break;
        case AttentionKind::kMla:
            mla_.forward(weights.mla, index, rows_, x, y);
            break;
    }
    stream_.add(y);
}

Status ForwardPass::mlp(const MoeCall& call) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(call.layer)];
    const std::span<float> x = x_.rows(call.tokens);
    const std::span<float> y = y_.rows(call.tokens);

    stream_.mix_and_norm(rows_.all(), weights.mlp_mixer, weights.post_attention_norm, x);
    if (config_.is_moe_layer(call.layer)) {
        K3POD_TRY(moe_.forward(weights.moe, call, x, y));
    } else {
        dense_.forward(weights.dense, call.tokens, x, y);
    }
    stream_.add(y);
    return Status::ok();
}

void ForwardPass::head(std::span<float> logits) {
    const std::span<float> x = x_.rows(rows_.num_logits());
    int32_t begin = 0;
    for (const ChunkRows& chunk : rows_.chunks()) {
        const RowRange wanted = chunk.logits_rows();
        if (wanted.count == 0) continue;
        stream_.mix_and_norm(wanted, weights_.output_mixer, weights_.final_norm,
                             rows_of(x, {begin, wanted.count}, config_.hidden));
        begin += wanted.count;
    }
    ops::linear(weights_.lm_head.view(), rows_.num_logits(), x, logits);
}

}  // namespace k3pod

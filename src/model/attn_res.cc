#include "model/attn_res.h"

#include <algorithm>

#include "k3pod/ops/elementwise.h"

namespace k3pod {

int32_t AttnResStream::num_blocks(const ModelConfig& config) {
    return (config.num_layers + config.attn_res_block - 1) / config.attn_res_block;
}

AttnResStream::AttnResStream(const ModelConfig& config, int32_t max_rows)
    : hidden_(config.hidden), eps_(config.rms_norm_eps) {
    for (int32_t i = 0; i < num_blocks(config) + 1; ++i)
        accumulators_.emplace_back(max_rows, hidden_);
}

std::span<float> AttnResStream::begin(int32_t tokens) {
    tokens_ = tokens;
    num_frozen_ = 0;
    starts_anew_ = false;
    return accumulators_[0].rows(tokens);
}

void AttnResStream::mix_and_norm(RowRange rows, std::span<const float> mixer,
                                 std::span<const float> norm, std::span<float> out) const {
    std::array<std::span<const float>, ops::kMaxAttnResBlocks> blocks;
    for (size_t i = 0; i < num_frozen_; ++i) {
        blocks[i] = rows_of(accumulators_[i].rows(tokens_), rows, hidden_);
    }
    ops::attn_res_mix({.tokens = rows.count,
                       .blocks = std::span(blocks).first(num_frozen_),
                       .prefix = rows_of(accumulator(), rows, hidden_),
                       .mixer = mixer,
                       .eps = eps_,
                       .norm_weight = norm,
                       .norm_eps = eps_,
                       .out = out});
}

void AttnResStream::freeze() {
    ++num_frozen_;
    starts_anew_ = true;
}

void AttnResStream::add(std::span<const float> y) {
    const std::span<float> accumulator = accumulators_[num_frozen_].rows(tokens_);
    if (starts_anew_) {
        std::ranges::copy(y, accumulator.begin());
    } else {
        ops::add(y, accumulator);
    }
    starts_anew_ = false;
}

}  // namespace k3pod

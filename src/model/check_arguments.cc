#include "model/check_arguments.h"

#include <fmt/format.h>

#include <array>

#include "k3pod/ops/attn_res.h"
#include "k3pod/ops/kda.h"
#include "k3pod/ops/router.h"
#include "model/attn_res.h"

namespace k3pod {
namespace {

struct Limit {
    const char* what;
    int64_t found;
    int64_t low, high;
};

// What the ops are made for. A config that parses may still be wider than they are.
Status check_limits(const ModelConfig& config, int32_t max_rows) {
    const std::array limits{
        Limit{"rows of a step", max_rows, 1, UINT16_MAX},  // a wire entry counts rows in 16 bits
        Limit{"linear_attn_config.short_conv_kernel_size", config.conv_kernel, ops::kKdaConvKernel,
              ops::kKdaConvKernel},
        Limit{"linear_attn_config.head_dim", config.kda_head_dim, 16, 128},
        Limit{"num_experts", config.num_experts, 1, ops::kMaxExperts},
        Limit{"num_experts_per_token", config.top_k, 1, config.num_experts},
        Limit{"AttnRes blocks (num_hidden_layers / attn_res_block_size)",
              AttnResStream::num_blocks(config), 1, ops::kMaxAttnResBlocks},
    };
    for (const Limit& limit : limits) {
        if (limit.found < limit.low || limit.found > limit.high) {
            return invalid_argument(fmt::format("{} is {}; this engine supports {} to {}",
                                                limit.what, limit.found, limit.low, limit.high));
        }
    }
    if (config.kda_head_dim % 16 != 0) {
        return invalid_argument(
            fmt::format("linear_attn_config.head_dim is {}; this engine supports multiples of 16",
                        config.kda_head_dim));
    }
    return Status::ok();
}

Status check_state(const ModelConfig& config, const StateShape& shape) {
    const StateShape expected = state_shape(config, shape.num_slots, shape.num_pages);
    if (shape == expected) return Status::ok();
    return invalid_argument("the state store was made for another model than the one that uses it");
}

Status check_weights(const ModelConfig& config, const StationWeights& weights) {
    if (std::ssize(weights.layers) == config.num_layers) return Status::ok();
    return invalid_argument(fmt::format("the weights have {} layers, the model has {}",
                                        weights.layers.size(), config.num_layers));
}

}  // namespace

Status check_model_arguments(const ModelConfig& config, const StationWeights& weights,
                             const StateShape& state, int32_t max_rows) {
    K3POD_TRY(check_limits(config, max_rows));
    K3POD_TRY(check_state(config, state));
    return check_weights(config, weights);
}

Status check_logits(std::span<const float> logits, int32_t num_rows, int32_t vocab) {
    if (std::ssize(logits) == int64_t{num_rows} * vocab) return Status::ok();
    return invalid_argument(
        fmt::format("logits: the step asks for {} rows of {}, the buffer holds {} values", num_rows,
                    vocab, logits.size()));
}

std::vector<int32_t> count_per_kind(const ModelConfig& config) {
    std::vector<int32_t> index;
    int32_t num_kda = 0, num_mla = 0;
    for (const AttentionKind kind : config.attention) {
        index.push_back(kind == AttentionKind::kKda ? num_kda++ : num_mla++);
    }
    return index;
}

}  // namespace k3pod

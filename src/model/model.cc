#include "k3pod/model/model.h"

#include <fmt/format.h>

#include <array>

#include "k3pod/ops/kda.h"
#include "k3pod/ops/router.h"
#include "model/attn_res.h"
#include "model/forward.h"

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

StateShape state_shape(const ModelConfig& config, int32_t num_slots, int32_t num_pages) {
    return {.num_kda_layers = config.num_kda_layers(),
            .kda_heads = config.kda_num_heads,
            .kda_head_dim = config.kda_head_dim,
            .conv_kernel = config.conv_kernel,
            .num_mla_layers = config.num_mla_layers(),
            .mla_cache_width = config.mla_cache_width(),
            .num_slots = num_slots,
            .num_pages = num_pages};
}

Result<std::unique_ptr<Model>> Model::create(const ModelConfig& config,
                                             const StationWeights& weights, StateStore& state,
                                             int32_t max_rows) {
    K3POD_TRY(check_limits(config, max_rows));
    K3POD_TRY(check_state(config, state.shape()));
    K3POD_TRY(check_weights(config, weights));
    return std::unique_ptr<Model>(std::make_unique<ForwardPass>(config, weights, state, max_rows));
}

}  // namespace k3pod

#include "k3pod/model/model.h"

#include "model/check_arguments.h"
#include "model/forward.h"

namespace k3pod {

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
    K3POD_TRY(check_model_arguments(config, weights, state.shape(), max_rows));
    return std::unique_ptr<Model>(std::make_unique<ForwardPass>(config, weights, state, max_rows));
}

}  // namespace k3pod

#include "model/mlp.h"

namespace k3pod {

Mlp::Mlp(const ModelConfig& config, int32_t max_width, int32_t max_rows)
    : situ_{.beta = config.situ_beta, .linear_beta = config.situ_linear_beta},
      scratch_(max_rows, 2 * max_width) {}

void Mlp::forward(const MlpWeights& weights, int32_t tokens, std::span<const float> x,
                  std::span<float> y) {
    ops::mlp({.tokens = tokens,
              .gate = weights.gate_proj.view(),
              .up = weights.up_proj.view(),
              .down = weights.down_proj.view(),
              .situ = situ_,
              .x = x,
              .scratch = scratch_.rows(tokens),
              .y = y});
}

}  // namespace k3pod

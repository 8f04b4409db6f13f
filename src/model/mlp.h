#pragma once
// The gated MLP with SiTU: the dense layers, and the shared experts of a MoE layer.

#include <cstdint>
#include <span>

#include "k3pod/ops/mlp.h"
#include "k3pod/weights/model_weights.h"
#include "model/row_buffer.h"

namespace k3pod {

class Mlp {
  public:
    // max_width bounds the inner width of the weights given to forward().
    Mlp(const ModelConfig& config, int32_t max_width, int32_t max_rows);

    // y[T, H] = down(SiTU(gate(x), up(x))).
    void forward(const MlpWeights& weights, int32_t tokens, std::span<const float> x,
                 std::span<float> y);

  private:
    ops::SituParams situ_;
    RowBuffer scratch_;  // [T, 2, width]
};

}  // namespace k3pod

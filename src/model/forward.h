#pragma once
// The forward pass over one step. The parts of the network own their work buffers; this class owns
// their order.

#include <cstdint>
#include <span>
#include <vector>

#include "k3pod/model/model.h"
#include "model/attn_res.h"
#include "model/kda.h"
#include "model/mla.h"
#include "model/mlp.h"
#include "model/moe.h"
#include "model/row_buffer.h"
#include "model/step_rows.h"

namespace k3pod {

class ForwardPass final : public Model {
  public:
    // The arguments have been checked by Model::create.
    ForwardPass(const ModelConfig& config, const StationWeights& weights, StateStore& state,
                int32_t max_rows);

    Status forward(const ModelStep& step, ExpertPort& experts, std::span<float> logits,
                   ForwardProbe* probe) override;

  private:
    void embed();
    void attention(int32_t layer);
    Status mlp(const MoeCall& call);
    void head(std::span<float> logits);

    const ModelConfig config_;
    const StationWeights& weights_;
    std::vector<int32_t> index_in_kind_;  // per layer: KDA or MLA layers below it

    StepRows rows_;
    AttnResStream stream_;
    KdaAttention kda_;
    MlaAttention mla_;
    Mlp dense_;
    LatentMoe moe_;
    RowBuffer x_, y_;  // [T, H] what a sublayer reads and writes
};

}  // namespace k3pod

#pragma once
// The latent mixture of experts: the router picks on the full hidden state, the routed experts work
// on a narrow latent behind an ExpertPort, the shared experts run here meanwhile. docs/model.md,
// "MoE".

#include <cstdint>
#include <span>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/model/expert_port.h"
#include "k3pod/model/model.h"
#include "k3pod/weights/model_weights.h"
#include "model/mlp.h"
#include "model/row_buffer.h"

namespace k3pod {

// One MoE layer of one step.
struct MoeCall {
    uint64_t step = 0;
    int32_t layer = 0;  // 0-based decoder layer
    int32_t tokens = 0;
    ExpertPort* experts = nullptr;
    ForwardProbe* probe = nullptr;  // may be null
};

class LatentMoe {
  public:
    LatentMoe(const ModelConfig& config, int32_t max_rows);

    // y[T, H] = up(RMSNorm(sum of the routed experts)) + shared(x[T, H]). The port's errors come
    // back as they are.
    Status forward(const MoeWeights& weights, const MoeCall& call, std::span<const float> x,
                   std::span<float> y);

  private:
    void route(const MoeWeights& weights, int32_t tokens, std::span<const float> x);
    Status dispatch(const MoeWeights& weights, const MoeCall& call, std::span<const float> x);
    std::span<uint16_t> chosen_experts(int32_t tokens);

    int32_t num_experts_;
    int32_t top_k_;
    int32_t latent_width_;  // L
    float scaling_;
    float eps_;
    RowBuffer router_logits_;       // [T, E]
    std::vector<uint16_t> chosen_;  // [T, K]
    RowBuffer expert_weights_;      // [T, K]
    RowBuffer latents_;             // [T, L]
    RowBuffer routed_;              // [T, L] sum of the experts, then normed
    RowBuffer routed_up_;           // [T, H]
    Mlp shared_;
};

}  // namespace k3pod

#include "model/moe.h"

#include "k3pod/ops/elementwise.h"
#include "k3pod/ops/linear.h"
#include "k3pod/ops/rms_norm.h"
#include "k3pod/ops/router.h"

namespace k3pod {

LatentMoe::LatentMoe(const ModelConfig& config, int32_t max_rows)
    : num_experts_(config.num_experts),
      top_k_(config.top_k),
      latent_width_(config.latent),
      scaling_(config.routed_scaling_factor),
      eps_(config.rms_norm_eps),
      router_logits_(max_rows, num_experts_),
      chosen_(static_cast<size_t>(int64_t{max_rows} * top_k_)),
      expert_weights_(max_rows, top_k_),
      latents_(max_rows, latent_width_),
      routed_(max_rows, latent_width_),
      routed_up_(max_rows, config.hidden),
      shared_(config, config.shared_width(), max_rows) {}

Status LatentMoe::forward(const MoeWeights& weights, const MoeCall& call, std::span<const float> x,
                          std::span<float> y) {
    const int32_t tokens = call.tokens;
    route(weights, tokens, x);
    if (call.probe != nullptr) {
        call.probe->on_routing(call.layer, {.logits = router_logits_.rows(tokens),
                                            .experts = chosen_experts(tokens),
                                            .weights = expert_weights_.rows(tokens)});
    }
    K3POD_TRY(dispatch(weights, call, x));
    shared_.forward(weights.shared, tokens, x, y);

    const std::span<float> routed = routed_.rows(tokens);
    K3POD_TRY(call.experts->combine(routed));
    // On the complete sum: the norm of a partial one would be another number.
    ops::rms_norm(tokens, weights.routed_norm, eps_, routed, routed);
    ops::linear(weights.latent_up.view(), tokens, routed, routed_up_.rows(tokens));
    ops::add(routed_up_.rows(tokens), y);
    return Status::ok();
}

void LatentMoe::route(const MoeWeights& weights, int32_t tokens, std::span<const float> x) {
    ops::linear(weights.router.view(), tokens, x, router_logits_.rows(tokens));
    ops::route({.tokens = tokens,
                .num_experts = num_experts_,
                .top_k = top_k_,
                .logits = router_logits_.rows(tokens),
                .bias = weights.router_bias,
                .scaling = scaling_,
                .experts = chosen_experts(tokens),
                .weights = expert_weights_.rows(tokens)});
}

Status LatentMoe::dispatch(const MoeWeights& weights, const MoeCall& call,
                           std::span<const float> x) {
    const std::span<float> latents = latents_.rows(call.tokens);
    ops::linear(weights.latent_down.view(), call.tokens, x, latents);
    return call.experts->dispatch({.step = call.step,
                                   .layer = call.layer,
                                   .rows = call.tokens,
                                   .latent = latent_width_,
                                   .top_k = top_k_,
                                   .latents = latents,
                                   .experts = chosen_experts(call.tokens),
                                   .weights = expert_weights_.rows(call.tokens)});
}

std::span<uint16_t> LatentMoe::chosen_experts(int32_t tokens) {
    return std::span(chosen_).first(static_cast<size_t>(tokens * top_k_));
}

}  // namespace k3pod

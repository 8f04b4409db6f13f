#include "model/cuda/moe.h"

#include <array>

#include "k3pod/kernels/norm.h"
#include "k3pod/kernels/router.h"
#include "model/cuda/project.h"

namespace k3pod {

Result<CudaMoe> CudaMoe::create(const ModelConfig& config, const kernels::HandOffLink& link,
                                int32_t max_rows) {
    CudaMoe moe;
    moe.num_experts_ = config.num_experts;
    moe.top_k_ = config.top_k;
    moe.latent_ = config.latent;
    moe.hidden_ = config.hidden;
    moe.scaling_ = config.routed_scaling_factor;
    moe.eps_ = config.rms_norm_eps;
    moe.link_ = link;
    K3POD_ASSIGN(moe.router_logits_, DeviceRowBuffer::create(max_rows, config.num_experts));
    K3POD_ASSIGN(moe.chosen_, DeviceBuffer::create(int64_t{max_rows} * config.top_k *
                                                   int64_t{sizeof(uint16_t)}));
    K3POD_ASSIGN(moe.expert_weights_, DeviceRowBuffer::create(max_rows, config.top_k));
    K3POD_ASSIGN(moe.latents_, DeviceRowBuffer::create(max_rows, config.latent));
    K3POD_ASSIGN(moe.routed_, DeviceRowBuffer::create(max_rows, config.latent));
    K3POD_ASSIGN(moe.shared_, CudaMlp::create(config, config.shared_width(), max_rows));
    return moe;
}

Status CudaMoe::launch(const StepLaunch& step, const DeviceMoe& weights, int32_t moe_layer,
                       const float* x, float* y) const {
    K3POD_TRY(step.done(KernelKind::kRouter, route(step, weights, x)));
    K3POD_TRY(step.done(KernelKind::kDispatch,
                        kernels::hand_off_dispatch({.link = link_,
                                                    .exchange_idx = moe_layer,
                                                    .rows = step.rows,
                                                    .num_rows = step.rows_used,
                                                    .latents_f32 = latents_.data(),
                                                    .experts = chosen_.as<uint16_t>(),
                                                    .weights = expert_weights_.data()},
                                                   step.stream)));
    K3POD_TRY(step.done(KernelKind::kSharedExperts, shared_.launch(step, weights.shared, x, y)));
    return combine(step, weights, moe_layer, y);
}

Status CudaMoe::route(const StepLaunch& step, const DeviceMoe& weights, const float* x) const {
    const std::array bands{
        kernels::GemmBand{.weight = weights.inputs[DeviceMoe::kRouter],
                          .y = dense_rows_out(router_logits_.data(), num_experts_)},
        kernels::GemmBand{.weight = weights.inputs[DeviceMoe::kLatentDown],
                          .y = dense_rows_out(latents_.data(), latent_)}};
    K3POD_TRY(project(step, dense_rows(x, hidden_), bands));
    return kernels::route({.rows = step.rows,
                           .num_experts = num_experts_,
                           .top_k = top_k_,
                           .logits = router_logits_.data(),
                           .bias = weights.router_bias,
                           .scaling = scaling_,
                           .experts = chosen_.as<uint16_t>(),
                           .weights = expert_weights_.data()},
                          step.stream);
}

Status CudaMoe::combine(const StepLaunch& step, const DeviceMoe& weights, int32_t moe_layer,
                        float* y) const {
    K3POD_TRY(step.done(KernelKind::kCombine, kernels::hand_off_combine({.link = link_,
                                                                         .exchange_idx = moe_layer,
                                                                         .rows = step.rows,
                                                                         .num_rows = step.rows_used,
                                                                         .out = routed_.data()},
                                                                        step.stream)));
    // On the complete sum: the norm of a partial one would be another number.
    K3POD_TRY(kernels::rms_norm({.rows = step.rows,
                                 .width = latent_,
                                 .weight = weights.routed_norm,
                                 .eps = eps_,
                                 .x = routed_.data(),
                                 .y = routed_.data()},
                                step.stream));
    const kernels::GemmBand up{
        .weight = weights.latent_up, .y = dense_rows_out(y, hidden_), .adds = true};
    return step.done(KernelKind::kLatentUp,
                     project(step, dense_rows(routed_.data(), latent_), {&up, 1}));
}

Result<RoutingView> CudaMoe::read_routing(int32_t rows, const DeviceStream& stream) {
    const auto read = [&](auto& host, const void* device, int64_t width) {
        host.resize(static_cast<size_t>(rows * width));
        return copy_to_host(host.data(), device,
                            static_cast<int64_t>(host.size() * sizeof(host[0])), stream.get());
    };
    K3POD_TRY(read(host_.logits, router_logits_.data(), num_experts_));
    K3POD_TRY(read(host_.experts, chosen_.data(), top_k_));
    K3POD_TRY(read(host_.weights, expert_weights_.data(), top_k_));
    K3POD_TRY(stream.synchronize());
    return RoutingView{.logits = host_.logits, .experts = host_.experts, .weights = host_.weights};
}

}  // namespace k3pod

#pragma once
// The GPU's LatentMoe (model/moe.h).

#include <cstdint>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/kernels/hand_off.h"
#include "k3pod/model/model.h"
#include "k3pod/weights/model_config.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/mlp.h"
#include "model/cuda/step_launch.h"

namespace k3pod {

class CudaMoe {
  public:
    CudaMoe() = default;
    // Borrows what `link` points to.
    static Result<CudaMoe> create(const ModelConfig& config, const kernels::HandOffLink& link,
                                  int32_t max_rows);

    // y[R, H] = up(RMSNorm(sum of the routed experts)) + shared(x[R, H]). The experts are asked
    // through the hand-off, in which this is the exchange `moe_layer`; the shared ones run until
    // they answer.
    Status launch(const StepLaunch& step, const DeviceMoe& weights, int32_t moe_layer,
                  const float* x, float* y) const;

    // Copies what the router decided in the last launch, once it has run, for the first `rows`.
    Result<RoutingView> read_routing(int32_t rows, const DeviceStream& stream);

  private:
    Status route(const StepLaunch& step, const DeviceMoe& weights, const float* x) const;
    Status combine(const StepLaunch& step, const DeviceMoe& weights, int32_t moe_layer,
                   float* y) const;

    int32_t num_experts_ = 0, top_k_ = 0, latent_ = 0;
    int64_t hidden_ = 0;
    float scaling_ = 0, eps_ = 0;
    kernels::HandOffLink link_;
    DeviceRowBuffer router_logits_;   // [R, E]
    DeviceBuffer chosen_;             // [R, K] uint16
    DeviceRowBuffer expert_weights_;  // [R, K]
    DeviceRowBuffer latents_;         // [R, L]
    DeviceRowBuffer routed_;          // [R, L] sum of the experts, then normed
    CudaMlp shared_;

    struct HostRouting {
        std::vector<float> logits, weights;
        std::vector<uint16_t> experts;
    } host_;
};

}  // namespace k3pod

#pragma once
// The GPU's KdaAttention (model/kda.h).

#include <cstdint>

#include "k3pod/base/status.h"
#include "k3pod/kernels/kda.h"
#include "k3pod/state/state_store.h"
#include "k3pod/weights/model_config.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/step_launch.h"

namespace k3pod {

class CudaKda {
  public:
    CudaKda() = default;
    // Borrows state.
    static Result<CudaKda> create(const ModelConfig& config, StateStore& state, int32_t max_rows);

    // y[R, H] = KDA(x[R, H]); advances the state of every chunk in this layer. kda_layer counts KDA
    // layers only.
    Status launch(const StepLaunch& step, const DeviceKda& weights, int32_t kda_layer,
                  const float* x, float* y) const;

  private:
    Status project_inputs(const StepLaunch& step, const DeviceKda& weights, const float* x) const;
    kernels::KdaLayerState layer_state(int32_t kda_layer) const;

    kernels::KdaShape shape_;
    int64_t hidden_ = 0;
    StatePools pools_;
    int64_t recurrent_elements_ = 0;  // of one layer
    int64_t conv_elements_ = 0;
    int32_t num_layers_ = 0;
    // What the projections give, side by side: q, k, v, g, f [P] each, then f_a [D], b [heads].
    DeviceRowBuffer inputs_;
    int64_t f_a_ = 0, b_ = 0;  // offsets in a row
    DeviceRowBuffer out_;      // [R, P]
    DeviceBuffer workspace_;
};

}  // namespace k3pod

#pragma once
// The GPU's MlaAttention (model/mla.h).

#include <cstdint>

#include "k3pod/base/status.h"
#include "k3pod/kernels/mla.h"
#include "k3pod/state/state_store.h"
#include "k3pod/weights/model_config.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/step_launch.h"

namespace k3pod {

class CudaMla {
  public:
    CudaMla() = default;
    // Borrows state. max_context: tokens of the longest sequence, for how it is split.
    static Result<CudaMla> create(const ModelConfig& config, StateStore& state, int32_t max_rows,
                                  int32_t max_context);

    // y[R, H] = MLA(x[R, H]); writes the rows of every chunk into its pages of this layer.
    // mla_layer counts MLA layers only.
    Status launch(const StepLaunch& step, const DeviceMla& weights, int32_t mla_layer,
                  const float* x, float* y) const;

  private:
    Status project_inputs(const StepLaunch& step, const DeviceMla& weights, const float* x) const;
    Status attend(const StepLaunch& step, const DeviceMla& weights, int32_t mla_layer) const;
    int32_t num_splits(const StepLaunch& step) const;

    kernels::MlaDims dims_;
    int32_t q_lora_ = 0;
    int64_t hidden_ = 0;
    float scale_ = 0;
    int32_t max_context_ = 0;
    Bf16* pages_ = nullptr;
    int64_t layer_elements_ = 0;  // of one page and layer
    int32_t num_layers_ = 0;
    DeviceRowBuffer inputs_;      // [R, q_a | g | kv_a]
    int64_t g_ = 0, kv_a_ = 0;    // offsets in a row
    DeviceRowBuffer low_rank_q_;  // [R, q_lora] normed
    DeviceRowBuffer q_;           // [R, heads, nope + rope]
    DeviceBuffer latent_q_;       // [R, heads, rank + rope] bf16
    DeviceRowBuffer latent_out_;  // [R, heads, rank]
    DeviceRowBuffer o_;           // [R, heads, value]
    DeviceBuffer workspace_;      // of the splits; bounds rows times splits
};

}  // namespace k3pod

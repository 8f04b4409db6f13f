#pragma once
// The GPU's Mlp (model/mlp.h).

#include <cstdint>

#include "k3pod/base/status.h"
#include "k3pod/weights/model_config.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/step_launch.h"

namespace k3pod {

class CudaMlp {
  public:
    CudaMlp() = default;
    // max_width bounds the inner width of the weights given to launch().
    static Result<CudaMlp> create(const ModelConfig& config, int32_t max_width, int32_t max_rows);

    // y[R, H] = down(SiTU(gate(x), up(x))).
    Status launch(const StepLaunch& step, const DeviceMlp& weights, const float* x, float* y) const;

  private:
    float beta_ = 0, linear_beta_ = 0;
    int64_t hidden_ = 0;
    DeviceRowBuffer inner_;  // [R, width]
};

}  // namespace k3pod

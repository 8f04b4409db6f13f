#pragma once
// The GPU's AttnResStream (model/attn_res.h). What a sublayer wrote is added to the accumulator by
// the next mix, which reads both anyway.

#include <array>
#include <cstdint>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/kernels/attn_res.h"
#include "k3pod/weights/model_config.h"
#include "model/cuda/step_launch.h"
#include "model/row_buffer.h"

namespace k3pod {

struct MixWeights {
    const float* mixer = nullptr;  // [H]
    const float* norm = nullptr;   // [H]
};

class CudaAttnRes {
  public:
    CudaAttnRes() = default;
    static Result<CudaAttnRes> create(const ModelConfig& config, int32_t num_blocks,
                                      int32_t max_rows);

    // Starts a step without frozen blocks. Returns the accumulator, [R, H], for the embeddings.
    float* begin();

    // out[count, H] = RMSNorm(mixture of the frozen blocks and the accumulator), for `rows`, with
    // what the last sublayer wrote added to the accumulator first.
    Status mix_and_norm(const StepLaunch& step, RowRange rows, const MixWeights& weights,
                        float* out);

    // The accumulator becomes the next frozen block; the next sublayer's output starts a new one.
    void freeze();

    // Where the next sublayer writes its output, [R, H]. To be asked once for each.
    float* sublayer_output();

    // Adds what the last sublayer wrote now, for those who look at the accumulator.
    Status settle(const StepLaunch& step);
    const float* accumulator() const { return accumulators_[num_frozen_].data(); }

  private:
    int64_t hidden_ = 0;
    float eps_ = 0;
    size_t num_frozen_ = 0;
    bool starts_anew_ = false;
    bool has_addend_ = false;
    std::vector<DeviceRowBuffer> accumulators_;  // the frozen ones in order, then the running one
    DeviceRowBuffer addend_;
};

}  // namespace k3pod

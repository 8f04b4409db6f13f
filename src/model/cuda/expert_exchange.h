#pragma once
// Between the hand-off of a step's GPU work and an ExpertPort: the step thread's part.

#include <cstdint>
#include <memory>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/hand_off.h"
#include "k3pod/kernels/hand_off.h"
#include "k3pod/model/expert_port.h"
#include "k3pod/weights/model_config.h"

namespace k3pod {

class ExpertExchange {
  public:
    static Result<std::unique_ptr<ExpertExchange>> create(const ModelConfig& config,
                                                          int32_t max_rows);

    // For the launches of the step.
    const kernels::HandOffLink& link() const { return link_; }

    // Before the step's first launch, with no step in flight.
    void begin_step(uint64_t step) {
        step_ = step;
        hand_off_->begin_step(kGpuLimit);
    }
    // Waits for the GPU to reach the MoE layer with this index among MoE layers, has its rows
    // worked on and hands the sum back. Errors of the port come back as they are, those of the work
    // in `stream` too; the step must then be abandoned.
    Status serve(int32_t moe_layer, ExpertPort& experts, const DeviceStream& stream);
    // Ends every wait of the step on the GPU.
    void abandon() { hand_off_->abort(); }
    // After all work of the step has run: whether every exchange was completed.
    Status end_step() const { return hand_off_->end_step(); }

  private:
    // The GPU gives up long after every deadline of the host. It only matters if the step thread
    // dies.
    static constexpr Nanoseconds kGpuLimit = std::chrono::minutes(30);

    ExpertExchange(const ModelConfig& config, PinnedBuffer shared, DeviceBuffer state);
    Result<HandOffRequest> wait_request(int32_t moe_layer, const DeviceStream& stream) const;

    int32_t first_layer_;
    int32_t latent_;
    int32_t top_k_;
    SteadyClock clock_;
    PinnedBuffer shared_;
    DeviceBuffer state_;
    std::unique_ptr<HandOff> hand_off_;
    kernels::HandOffLink link_;
    std::vector<float> latents_;  // [R, L] widened
    uint64_t step_ = 0;
};

}  // namespace k3pod

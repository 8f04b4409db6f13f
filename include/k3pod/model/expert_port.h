#pragma once
// How the forward pass reaches the routed experts. In-process tiers and remote servers implement
// it, together; the model never knows which.

#include <cstdint>
#include <span>
#include <string>

#include "k3pod/base/status.h"

namespace k3pod {

// The rows of one MoE layer in one step. All spans are borrowed until combine() returns.
struct RoutedRows {
    uint64_t step = 0;
    int32_t layer = 0;                  // 0-based decoder layer
    int32_t rows = 0;                   // R
    int32_t latent = 0;                 // L
    int32_t top_k = 0;                  // K
    std::span<const float> latents;     // [R, L] fp32; rounded to bf16 on the way to the experts
    std::span<const uint16_t> experts;  // [R, K]
    std::span<const float> weights;     // [R, K]
};

class ExpertPort {
  public:
    virtual ~ExpertPort() = default;

    // Starts the work of one layer. Returns as soon as the rows are on their way, so that the
    // caller can run the shared experts meanwhile. One dispatch is outstanding at a time. Step
    // thread.
    virtual Status dispatch(const RoutedRows& rows) = 0;

    // Waits for the dispatched layer and writes out[R, L] = sum over k of weight * expert(latent),
    // fp32, summed in a fixed order that does not depend on arrival. Complete or an error:
    // kDeadlineExceeded and kUnavailable name the holder. After an error the port accepts the next
    // dispatch. Step thread.
    //
    // A port may hold: while a holder is lost it waits here until the holder is back, because
    // earlier layers of the step have advanced state that cannot be taken back. A caller that does
    // something else meanwhile (a GPU that waits for the sum) allows for the port's longest hold.
    virtual Status combine(std::span<float> out) = 0;

    // While a step is held: for whom, since when and where, "waiting for spark-1 for 3.2 s at layer
    // 5"; else empty. Any thread.
    virtual std::string holding() const { return {}; }

    // For a station that ends: a step that is held fails with `why` at once, and none is held from
    // now on. Any thread.
    virtual void stop_holding(const Status& why) { static_cast<void>(why); }
};

}  // namespace k3pod

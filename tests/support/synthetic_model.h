#pragma once
// A small model with random weights and odd sizes, for tests of behaviour that needs no checkpoint.

#include <cstdint>

#include "k3pod/model/expert_port.h"
#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod::testing {

// Seven layers: MLA at 2, 5 and 6, two dense ones first, AttnRes blocks of three.
ModelConfig synthetic_config();

// Weights of a size that keeps activations near one; the same seed gives the same weights.
StationWeights synthetic_weights(const ModelConfig& config, uint64_t seed);

// Stands in for the routed experts: expert e returns its latent times (e + 1) / E. Remembers what
// it was asked, and fails on request.
class FakeExperts final : public ExpertPort {
  public:
    explicit FakeExperts(int32_t num_experts) : num_experts_(num_experts) {}

    Status dispatch(const RoutedRows& rows) override;
    Status combine(std::span<float> out) override;

    RoutedRows last;  // spans are dangling once the step is over
    int32_t num_dispatches = 0, num_combines = 0;
    int32_t fail_combine_of_layer = -1;

  private:
    int32_t num_experts_;
};

}  // namespace k3pod::testing

#pragma once
// What a sequence has said so far, and what that and the request's biases do to the next logits.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "k3pod/sample/sampler.h"

namespace k3pod {

class Penalties {
  public:
    Penalties(const SamplingParams& params, std::span<const int32_t> prompt, int32_t vocab);

    // Whether apply() can change anything.
    bool are_active() const { return counts_penalised_ || !bias_.empty(); }
    // Repetition penalty, then frequency and presence, then bias, in place.
    void apply(std::span<float> logits) const;  // [V]
    void count(int32_t generated_id);

  private:
    void note_seen(int32_t id);

    float repetition_, frequency_, presence_;
    bool counts_penalised_;
    std::vector<std::pair<int32_t, float>> bias_;
    // Both empty unless counts_penalised_. num_generated_ is kUnseen for ids that were never met.
    static constexpr int32_t kUnseen = -1;
    std::vector<int32_t> num_generated_;  // [V]
    std::vector<int32_t> seen_;           // ids met in prompt or output, each once
};

}  // namespace k3pod

#include "sample/penalties.h"

namespace k3pod {

Penalties::Penalties(const SamplingParams& params, std::span<const int32_t> prompt, int32_t vocab)
    : repetition_(params.repetition_penalty),
      frequency_(params.frequency_penalty),
      presence_(params.presence_penalty),
      counts_penalised_(repetition_ != 1.0f || frequency_ != 0.0f || presence_ != 0.0f),
      bias_(params.logit_bias.begin(), params.logit_bias.end()) {
    if (!counts_penalised_) return;
    num_generated_.assign(static_cast<size_t>(vocab), kUnseen);
    seen_.reserve(static_cast<size_t>(vocab));
    for (const int32_t id : prompt) note_seen(id);
}

void Penalties::note_seen(int32_t id) {
    int32_t& generated = num_generated_[static_cast<size_t>(id)];
    if (generated != kUnseen) return;
    generated = 0;
    seen_.push_back(id);
}

void Penalties::apply(std::span<float> logits) const {
    for (const int32_t id : seen_) {
        float& logit = logits[static_cast<size_t>(id)];
        const int32_t generated = num_generated_[static_cast<size_t>(id)];
        logit = logit > 0 ? logit / repetition_ : logit * repetition_;
        logit -= frequency_ * static_cast<float>(generated);
        if (generated > 0) logit -= presence_;
    }
    for (const auto& [id, bias] : bias_) logits[static_cast<size_t>(id)] += bias;
}

void Penalties::count(int32_t generated_id) {
    if (!counts_penalised_) return;
    note_seen(generated_id);
    ++num_generated_[static_cast<size_t>(generated_id)];
}

}  // namespace k3pod

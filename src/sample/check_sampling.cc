#include <fmt/format.h>

#include "k3pod/sample/sampler.h"

namespace k3pod {
namespace {

struct Range {
    float low;
    float high;
    bool low_is_allowed = true;
};

// Comparisons are written so that NaN fails them.
Status check_range(const char* field, float value, const Range& range) {
    const bool above_low = range.low_is_allowed ? value >= range.low : value > range.low;
    if (above_low && value <= range.high) return Status::ok();
    return invalid_argument(fmt::format("{} is {}; it must be in {}{}, {}]", field, value,
                                        range.low_is_allowed ? '[' : '(', range.low, range.high));
}

Status check_bias(const std::map<int32_t, float>& logit_bias, int32_t vocab) {
    for (const auto& [id, bias] : logit_bias) {
        if (id < 0 || id >= vocab) {
            return invalid_argument(fmt::format(
                "logit_bias names token id {}; ids of this model are in [0, {}]", id, vocab - 1));
        }
        K3POD_TRY(check_range(fmt::format("logit_bias of token id {}", id).c_str(), bias,
                              {-100.0f, 100.0f}));
    }
    return Status::ok();
}

}  // namespace

Status check_sampling(const SamplingParams& params, int32_t vocab) {
    constexpr bool kExclusive = false;
    K3POD_TRY(check_range("temperature", params.temperature, {0.0f, 2.0f}));
    K3POD_TRY(check_range("top_p", params.top_p, {0.0f, 1.0f, kExclusive}));
    K3POD_TRY(check_range("min_p", params.min_p, {0.0f, 1.0f}));
    K3POD_TRY(check_range("presence_penalty", params.presence_penalty, {-2.0f, 2.0f}));
    K3POD_TRY(check_range("frequency_penalty", params.frequency_penalty, {-2.0f, 2.0f}));
    K3POD_TRY(check_range("repetition_penalty", params.repetition_penalty,
                          {static_cast<float>(kMinRepetitionPenalty), 2.0f}));
    if (params.top_k < -1) {
        return invalid_argument(fmt::format(
            "top_k is {}; it must be a number of tokens, or 0 or -1 for no limit", params.top_k));
    }
    if (params.num_logprobs < -1 || params.num_logprobs > kMaxLogprobs) {
        return invalid_argument(fmt::format(
            "{} alternatives per token are asked for with logprobs; 0 to {} are possible",
            params.num_logprobs, kMaxLogprobs));
    }
    return check_bias(params.logit_bias, vocab);
}

}  // namespace k3pod

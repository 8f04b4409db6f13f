#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "k3pod/sample/sampler.h"

namespace k3pod {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocab = 2304;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct BadCase {
    std::function<void(SamplingParams&)> spoil;
    const char* message;
};

TEST(CheckSampling, refuses_each_field_outside_its_limits) {
    const BadCase cases[] = {
        {[](auto& p) { p.temperature = -0.1f; }, "temperature is -0.1; it must be in [0, 2]"},
        {[](auto& p) { p.temperature = 2.5f; }, "temperature is 2.5; it must be in [0, 2]"},
        {[](auto& p) { p.temperature = kNan; }, "temperature is nan; it must be in [0, 2]"},
        {[](auto& p) { p.top_p = 0.0f; }, "top_p is 0; it must be in (0, 1]"},
        {[](auto& p) { p.top_p = 1.5f; }, "top_p is 1.5; it must be in (0, 1]"},
        {[](auto& p) { p.min_p = -1.0f; }, "min_p is -1; it must be in [0, 1]"},
        {[](auto& p) { p.top_k = -2; }, "top_k is -2;"},
        {[](auto& p) { p.presence_penalty = 2.5f; },
         "presence_penalty is 2.5; it must be in [-2, 2]"},
        {[](auto& p) { p.frequency_penalty = -3.0f; },
         "frequency_penalty is -3; it must be in [-2, 2]"},
        {[](auto& p) { p.repetition_penalty = 0.0f; },
         "repetition_penalty is 0; it must be in [1e-06, 2]"},
        {[](auto& p) { p.num_logprobs = 21; }, "21 alternatives per token are asked for"},
        {[](auto& p) { p.num_logprobs = -2; }, "-2 alternatives per token are asked for"},
        {[](auto& p) { p.logit_bias[2304] = 1; },
         "logit_bias names token id 2304; ids of this model are in [0, 2303]"},
        {[](auto& p) { p.logit_bias[-1] = 1; }, "logit_bias names token id -1;"},
        {[](auto& p) { p.logit_bias[7] = 101; },
         "logit_bias of token id 7 is 101; it must be in [-100, 100]"},
    };
    for (const BadCase& bad : cases) {
        SamplingParams params;
        bad.spoil(params);
        const Status status = check_sampling(params, kVocab);
        EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad.message;
        EXPECT_THAT(status.message(), HasSubstr(bad.message));
    }
}

TEST(CheckSampling, accepts_the_limits_themselves) {
    SamplingParams low;
    low.temperature = 0;
    low.top_k = -1;
    low.min_p = 0;
    low.presence_penalty = low.frequency_penalty = -2;
    low.repetition_penalty = low.top_p = 1e-6f;
    low.logit_bias[0] = -100;
    EXPECT_EQ(check_sampling(low, kVocab).to_string(), "ok");

    SamplingParams high;
    high.temperature = high.repetition_penalty = 2;
    high.presence_penalty = high.frequency_penalty = 2;
    high.top_p = high.min_p = 1;
    high.top_k = 1'000'000;
    high.num_logprobs = 20;
    high.logit_bias[2303] = 100;
    EXPECT_EQ(check_sampling(high, kVocab).to_string(), "ok");
}

}  // namespace
}  // namespace k3pod

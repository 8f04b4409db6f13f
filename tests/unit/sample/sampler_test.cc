#include "k3pod/sample/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace k3pod {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Logits = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The softmax of these is 0.1, 0.2, 0.3, 0.4.
const Logits kTenths = {std::log(1.0f), std::log(2.0f), std::log(3.0f), std::log(4.0f)};

SamplingParams greedy() {
    SamplingParams params;
    params.temperature = 0;
    return params;
}

SampledToken draw_one(const SamplingParams& params, const Logits& logits, int64_t position = 0,
                      const std::vector<int32_t>& prompt = {},
                      const std::vector<int32_t>& banned = {}) {
    SamplerWorkspace workspace(static_cast<int32_t>(logits.size()));
    Sampler sampler(params, prompt, workspace);
    return sampler.draw(logits, position, banned).value();
}

// Every id that comes up in many draws.
std::set<int32_t> drawn_ids(const SamplingParams& params, const Logits& logits) {
    SamplerWorkspace workspace(static_cast<int32_t>(logits.size()));
    Sampler sampler(params, {}, workspace);
    std::set<int32_t> ids;
    for (int64_t position = 0; position < 500; ++position) {
        ids.insert(sampler.draw(logits, position, {}).value().id);
    }
    return ids;
}

TEST(Sampler, greedy_takes_the_largest_logit_and_the_lowest_id_of_a_tie) {
    EXPECT_EQ(draw_one(greedy(), {1, 5, 2, 5, 0}).id, 1);
    EXPECT_EQ(draw_one(greedy(), {-7, -7, -7}).id, 0);
    SamplingParams nearly = greedy();
    nearly.temperature = 1e-30f;
    EXPECT_EQ(draw_one(nearly, {1, 5, 2, 5, 0}).id, 1);
}

TEST(Sampler, repetition_penalty_covers_prompt_and_output_and_shrinks_either_sign) {
    SamplingParams params = greedy();
    params.repetition_penalty = 2;
    // id 0: 4 / 2 = 2 falls below 3; then id 1 was said too: 3 / 2 = 1.5 falls below 2.
    SamplerWorkspace workspace(3);
    Sampler sampler(params, std::vector<int32_t>{0}, workspace);
    const Logits logits = {4, 3, -1};
    EXPECT_EQ(sampler.draw(logits, 0, {}).value().id, 1);
    EXPECT_EQ(sampler.draw(logits, 1, {}).value().id, 0);
    // -1 * 2 = -2 falls below -1.5.
    EXPECT_EQ(draw_one(params, {-1.0f, -1.5f}, 0, {0}).id, 1);
}

TEST(Sampler, frequency_penalty_grows_with_each_use_and_ignores_the_prompt) {
    SamplingParams params = greedy();
    params.frequency_penalty = 1;
    SamplerWorkspace workspace(2);
    Sampler sampler(params, std::vector<int32_t>{0, 0, 0, 0, 0}, workspace);
    const Logits logits = {2.5f, 0};
    std::vector<int32_t> ids;
    for (int64_t position = 0; position < 6; ++position) {
        ids.push_back(sampler.draw(logits, position, {}).value().id);
    }
    // 2.5, 1.5, 0.5 beat 0; then -0.5 loses to 0, beats -1, and -1.5 loses to -1.
    EXPECT_THAT(ids, ElementsAre(0, 0, 0, 1, 0, 1));
}

TEST(Sampler, presence_penalty_counts_once) {
    SamplingParams params = greedy();
    params.presence_penalty = 1;
    SamplerWorkspace workspace(2);
    Sampler sampler(params, {}, workspace);
    const Logits logits = {2.5f, 0};
    for (int64_t position = 0; position < 6; ++position) {
        EXPECT_EQ(sampler.draw(logits, position, {}).value().id, 0) << position;
    }
}

TEST(Sampler, bias_forces_and_forbids) {
    SamplingParams params = greedy();
    params.logit_bias = {{0, 100.0f}};
    EXPECT_EQ(draw_one(params, {-30, 40, 50}).id, 0);
    params.logit_bias = {{2, -100.0f}};
    EXPECT_EQ(draw_one(params, {-30, 40, 50}).id, 1);
}

TEST(Sampler, banned_ids_are_never_drawn) {
    EXPECT_EQ(draw_one(greedy(), {9, 1, 2}, 0, {}, {0}).id, 2);
    SamplingParams params;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        params.seed = seed;
        EXPECT_EQ(draw_one(params, {9, 1, 9}, 0, {}, {0, 2}).id, 1);
    }
}

TEST(Sampler, top_k_keeps_the_best_and_the_lower_id_of_a_tie) {
    SamplingParams params;
    params.top_k = 1;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(3));
    params.top_k = 2;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(2, 3));
    EXPECT_THAT(drawn_ids(params, {1, 1, 1, 1, 1}), ElementsAre(0, 1));
    params.top_k = -1;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(0, 1, 2, 3));
    params.top_k = 100;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(0, 1, 2, 3));
}

TEST(Sampler, top_p_keeps_the_shortest_prefix_that_reaches_it) {
    SamplingParams params;
    params.top_p = 1e-6f;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(3));
    params.top_p = 0.39f;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(3));
    params.top_p = 0.41f;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(2, 3));
    params.top_p = 0.71f;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(1, 2, 3));
    params.top_p = 0.95f;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(0, 1, 2, 3));
    params.top_p = 0.5f;
    EXPECT_THAT(drawn_ids(params, {1, 1, 1, 1, 1, 1}), ElementsAre(0, 1, 2));
}

TEST(Sampler, top_p_is_a_share_of_what_top_k_left) {
    SamplingParams params;
    params.top_p = 0.44f;  // of 0.4 + 0.3 + 0.2 = 0.9 that is 0.396: the best id alone reaches it.
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(2, 3));
    params.top_k = 3;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(3));
}

TEST(Sampler, min_p_is_relative_to_the_best) {
    SamplingParams params;
    params.min_p = 0.6f;  // of 0.4: at least 0.24
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(2, 3));
    params.min_p = 1.0f;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(3));
    params.min_p = 0.3f;
    EXPECT_THAT(drawn_ids(params, kTenths), ElementsAre(1, 2, 3));
}

TEST(Sampler, reports_logprobs_of_the_raw_distribution) {
    SamplingParams params = greedy();
    params.num_logprobs = 3;
    params.repetition_penalty = 2;
    params.logit_bias = {{0, 50.0f}};
    const SampledToken token = draw_one(params, kTenths, 0, {3});
    EXPECT_EQ(token.id, 0);
    EXPECT_EQ(token.logprob.id, 0);
    EXPECT_NEAR(token.logprob.logprob, -2.302585f, 1e-5);  // ln 0.1
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.top[0].id, 3);
    EXPECT_NEAR(token.top[0].logprob, -0.916291f, 1e-5);  // ln 0.4
    EXPECT_EQ(token.top[1].id, 2);
    EXPECT_NEAR(token.top[1].logprob, -1.203973f, 1e-5);  // ln 0.3
    EXPECT_EQ(token.top[2].id, 1);
    EXPECT_NEAR(token.top[2].logprob, -1.609438f, 1e-5);  // ln 0.2
}

TEST(Sampler, orders_equal_alternatives_by_id_and_gives_no_more_than_there_are) {
    SamplingParams params = greedy();
    params.num_logprobs = 20;
    const SampledToken token = draw_one(params, {0, 3, 0, 3});
    std::vector<int32_t> ids;
    for (const TokenLogprob& entry : token.top) ids.push_back(entry.id);
    EXPECT_THAT(ids, ElementsAre(1, 3, 0, 2));
}

TEST(Sampler, leaves_logprobs_out_unless_asked) {
    EXPECT_TRUE(draw_one(greedy(), kTenths).top.empty());
    SamplingParams params = greedy();
    params.num_logprobs = 0;
    const SampledToken token = draw_one(params, kTenths);
    EXPECT_TRUE(token.top.empty());
    EXPECT_NEAR(token.logprob.logprob, -0.916291f, 1e-5);
}

TEST(Sampler, keeps_logprobs_of_impossible_ids_finite) {
    SamplingParams params = greedy();
    params.num_logprobs = 2;
    const SampledToken token = draw_one(params, {-kInf, 1});
    EXPECT_EQ(token.id, 1);
    EXPECT_EQ(token.top[0].logprob, 0.0f);
    EXPECT_EQ(token.top[1].logprob, kMinLogprob);
}

TEST(Sampler, refuses_logits_that_are_not_finite) {
    Logits logits(100, 1.0f);
    logits[17] = kNan;
    logits[40] = kInf;
    logits[41] = -kInf;
    for (const float temperature : {0.0f, 1.0f}) {
        SamplingParams params;
        params.temperature = temperature;
        SamplerWorkspace workspace(100);
        Sampler sampler(params, {}, workspace);
        const Status status = sampler.draw(logits, 5, {}).status();
        EXPECT_EQ(status.code(), Code::kInternal);
        EXPECT_THAT(status.message(),
                    HasSubstr("logits for generated token 5 are not finite: 1 NaN and 1 +inf among "
                              "100 ids, the first at id 17"));
    }
}

TEST(Sampler, refuses_when_nothing_is_left_to_draw) {
    SamplerWorkspace workspace(2);
    Sampler sampler(SamplingParams{}, {}, workspace);
    const Status none = sampler.draw(Logits{-kInf, -kInf}, 0, {}).status();
    EXPECT_EQ(none.code(), Code::kInternal);
    EXPECT_THAT(none.message(), HasSubstr("all 2 logits are -inf"));
    const std::vector<int32_t> both = {0, 1};
    EXPECT_EQ(sampler.draw(Logits{1, 2}, 0, both).status().code(), Code::kInternal);
}

TEST(Sampler, survives_extreme_logits_at_every_temperature) {
    for (const float temperature : {1e-5f, 1e-3f, 1.0f, 2.0f}) {
        SamplingParams params;
        params.temperature = temperature;
        params.top_p = 0.9f;
        EXPECT_EQ(draw_one(params, {-3e38f, 3e38f, 0, -kInf}).id, 1) << temperature;
    }
}

}  // namespace
}  // namespace k3pod

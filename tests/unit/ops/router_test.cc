#include "k3pod/ops/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::poisoned;

double exact_sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

class Router : public EveryTarget {
  protected:
    void run(int32_t tokens, int32_t top_k, std::vector<float> logits, std::vector<float> bias,
             float scaling = 1.0f) {
        experts.assign(tokens * top_k, 0xffff);
        weights = poisoned(tokens * top_k);
        route({.tokens = tokens,
               .num_experts = static_cast<int32_t>(bias.size()),
               .top_k = top_k,
               .logits = logits,
               .bias = bias,
               .scaling = scaling,
               .experts = experts,
               .weights = weights});
    }
    std::vector<uint16_t> experts;
    std::vector<float> weights;
};

TEST_P(Router, orders_by_score_plus_bias_and_weighs_by_score) {
    // Scores .5, .5, .9, .1; the bias lifts expert 3 to the front and sinks expert 2.
    const float nine_tenths = std::log(9.0f);
    run(1, 3, {0.0f, 0.0f, nine_tenths, -nine_tenths}, {0.0f, 0.25f, -0.5f, 1.0f});
    EXPECT_EQ(experts, (std::vector<uint16_t>{3, 1, 0}));
    EXPECT_NEAR(weights[0], 0.1 / 1.1, 1e-6);
    EXPECT_NEAR(weights[1], 0.5 / 1.1, 1e-6);
    EXPECT_NEAR(weights[2], 0.5 / 1.1, 1e-6);
}

TEST_P(Router, gives_ties_to_the_lower_expert) {
    run(1, 3, std::vector<float>(7, 0.5f), std::vector<float>(7, 0.0f));
    EXPECT_EQ(experts, (std::vector<uint16_t>{0, 1, 2}));
    run(1, 2, {0.0f, 1.0f, 0.5f, 1.0f, 1.0f}, std::vector<float>(5, 0.0f));
    EXPECT_EQ(experts, (std::vector<uint16_t>{1, 3}));
}

TEST_P(Router, scales_the_weights) {
    run(1, 2, {1.0f, 1.0f}, {0.0f, 0.0f}, 2.5f);
    EXPECT_EQ(weights, (std::vector<float>{1.25f, 1.25f}));
}

TEST_P(Router, picks_the_k_largest_of_every_token) {
    constexpr int32_t kTokens = 20;
    constexpr int32_t kExperts = 896;
    constexpr int32_t kTopK = 16;
    const auto logits = random.normals(kTokens * kExperts);
    const auto bias = random.normals(kExperts, 0.1f);
    run(kTokens, kTopK, logits, bias);
    for (int32_t t = 0; t < kTokens; ++t) {
        std::vector<double> score(kExperts), choice(kExperts);
        for (int32_t e = 0; e < kExperts; ++e) {
            score[e] = exact_sigmoid(logits[t * kExperts + e]);
            choice[e] = score[e] + bias[e];
        }
        std::vector<int32_t> order(kExperts);
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int a, int b) { return choice[a] > choice[b]; });
        double sum = 0;
        for (int32_t k = 0; k < kTopK; ++k) sum += score[experts[t * kTopK + k]];
        for (int32_t k = 0; k < kTopK; ++k) {
            const uint16_t expert = experts[t * kTopK + k];
            // fp32 may swap neighbours whose values differ by less than its rounding.
            ASSERT_NEAR(choice[expert], choice[order[k]], 1e-6) << "token " << t << " place " << k;
            ASSERT_NEAR(weights[t * kTopK + k], score[expert] / sum, 1e-6);
        }
        std::set<uint16_t> distinct(experts.begin() + t * kTopK, experts.begin() + (t + 1) * kTopK);
        ASSERT_EQ(distinct.size(), 16u);
    }
}

TEST_P(Router, keeps_weights_finite_when_every_score_vanishes) {
    run(1, 2, {-1e30f, -1e30f, -1e30f}, {0.0f, 0.0f, 0.0f});
    EXPECT_EQ(experts, (std::vector<uint16_t>{0, 1}));
    EXPECT_TRUE(std::isfinite(weights[0]) && std::isfinite(weights[1]));
}

TEST_P(Router, gives_distinct_ids_and_nan_weights_for_nan_logits) {
    run(1, 3, std::vector<float>(5, std::nanf("")), std::vector<float>(5, 0.0f));
    EXPECT_EQ(experts, (std::vector<uint16_t>{0, 1, 2}));
    for (const float w : weights) EXPECT_TRUE(std::isnan(w));
}

TEST_P(Router, prefers_any_number_to_nan) {
    run(1, 2, {std::nanf(""), -3.0f, std::nanf(""), 2.0f}, std::vector<float>(4, 0.0f));
    EXPECT_EQ(experts, (std::vector<uint16_t>{3, 1}));
    EXPECT_NEAR(weights[0] + weights[1], 1.0, 1e-6);
}

TEST_P(Router, can_pick_every_expert) {
    run(1, 4, {1, 3, 2, 0}, {0, 0, 0, 0});
    EXPECT_EQ(experts, (std::vector<uint16_t>{1, 2, 0, 3}));
}

K3POD_ON_EVERY_TARGET(Router);

}  // namespace
}  // namespace k3pod::ops

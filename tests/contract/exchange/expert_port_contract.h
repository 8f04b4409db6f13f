#pragma once
// What every ExpertPort promises. An implementation says how to make one over the fake experts, and
// instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Loopback, ExpertPortContract, Values(ExpertPortParty{"sliced", make}),
//                            expert_port_party_name);

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "k3pod/model/expert_port.h"
#include "tests/support/fake_experts.h"

namespace k3pod::testing {

// Owns a port and all that it needs.
class PortUnderTest {
  public:
    virtual ~PortUnderTest() = default;
    virtual ExpertPort& port() = 0;
    // Ok when it was built.
    virtual Status status() const { return Status::ok(); }
};

struct ExpertPortParty {
    std::string name;
    std::function<std::unique_ptr<PortUnderTest>()> make;
};

inline std::string expert_port_party_name(const ::testing::TestParamInfo<ExpertPortParty>& party) {
    return party.param.name;
}

class ExpertPortContract : public ::testing::TestWithParam<ExpertPortParty> {
  protected:
    void SetUp() override {
        made_ = GetParam().make();
        ASSERT_TRUE(made_->status().is_ok()) << made_->status().to_string();
    }
    ExpertPort& port() { return made_->port(); }

    // The sum, or nothing and a test failure.
    std::vector<float> run(const FakeStep& step) {
        std::vector<float> out(step.latents.size(), 99.0f);
        const Status sent = port().dispatch(step.rows());
        EXPECT_TRUE(sent.is_ok()) << sent.to_string();
        if (!sent.is_ok()) return {};
        const Status done = port().combine(out);
        EXPECT_TRUE(done.is_ok()) << done.to_string();
        return done.is_ok() ? out : std::vector<float>{};
    }

  private:
    std::unique_ptr<PortUnderTest> made_;
};

TEST_P(ExpertPortContract, sums_the_picks_of_one_row_by_weight) {
    // Layer 2: expert 1 is 2 * 2, expert 4 is 2 * -1; 0.5 * 4 - 0.25 * 2 = 1.5.
    EXPECT_THAT(run(fake_step({{1, 4}}, 1, 2)),
                ::testing::ElementsAre(0.0f, 1.5f, 3.0f, 4.5f, 0.0f, 1.5f, 3.0f, 4.5f));
}

TEST_P(ExpertPortContract, keeps_rows_apart) {
    // Layer 1. Row 0: 0.5 * 1 + 0.25 * 2 = 1. Row 1: 0.5 * -8 + 0.25 * 8 = -2. Row 2: 0.5 * 2 -
    // 0.25 * 2.
    EXPECT_THAT(run(fake_step({{0, 1}, {7, 3}, {1, 5}})),
                ::testing::ElementsAre(0.0f, 1.0f, 2.0f, 3.0f, 0.0f, 1.0f, 2.0f, 3.0f,        //
                                       -2.0f, -4.0f, -6.0f, 0.0f, -2.0f, -4.0f, -6.0f, 0.0f,  //
                                       1.0f, 1.5f, 0.0f, 0.5f, 1.0f, 1.5f, 0.0f, 0.5f));
}

TEST_P(ExpertPortContract, rounds_latents_to_bf16) {
    FakeStep step = fake_step({{0, 1}});
    step.latents[0] =
        1.00390625f;  // 1 + 2^-8, halfway between bf16 1 and 1 + 2^-7: goes to even, 1
    step.latents[1] = 1.01171875f;  // 1 + 3 * 2^-8, goes to 1 + 2^-6
    const std::vector<float> sum = run(step);
    ASSERT_EQ(sum.size(), 8u);
    EXPECT_EQ(sum[0], 1.0f);
    EXPECT_EQ(sum[1], 1.015625f);
}

TEST_P(ExpertPortContract, answers_a_step_without_rows) {
    EXPECT_TRUE(run(fake_step({})).empty());
}

TEST_P(ExpertPortContract, takes_as_many_rows_as_agreed) {
    const FakeStep step = random_fake_step(7, kFakeLimits.max_rows, 1, 3);
    EXPECT_EQ(run(step), expected_sum(step));
}

TEST_P(ExpertPortContract, gives_a_row_the_same_bits_whatever_else_is_in_the_step) {
    const std::vector<float> alone = run(fake_step({{6, 2}}, 1));
    const std::vector<float> among = run(fake_step({{6, 2}, {2, 6}, {0, 7}, {5, 1}}, 2));
    ASSERT_EQ(among.size(), 32u);
    EXPECT_EQ(std::vector<float>(among.begin(), among.begin() + 8), alone);
}

TEST_P(ExpertPortContract, lets_a_layer_be_abandoned) {
    ASSERT_TRUE(port().dispatch(fake_step({{0, 1}}, 1).rows()).is_ok());
    EXPECT_THAT(run(fake_step({{2, 3}}, 2)),  // 0.5 * 4 + 0.25 * 8
                ::testing::ElementsAre(0.0f, 4.0f, 8.0f, 12.0f, 0.0f, 4.0f, 8.0f, 12.0f));
}

TEST_P(ExpertPortContract, answers_every_step_and_layer_exactly) {
    constexpr uint32_t kSteps = 60;
    for (uint32_t i = 0; i < kSteps; ++i) {
        for (int32_t layer = kFakeFirstLayer; layer < kFakeLimits.num_layers; ++layer) {
            const uint32_t seed = 100 * i + static_cast<uint32_t>(layer);
            const FakeStep step =
                random_fake_step(seed, 1 + static_cast<int32_t>(i) % 6, 1 + i, layer);
            ASSERT_EQ(run(step), expected_sum(step)) << "seed " << seed;
        }
    }
}

TEST_P(ExpertPortContract, answers_a_step_number_that_comes_again_with_other_rows) {
    for (uint32_t i = 0; i < 20; ++i) {
        const FakeStep step = random_fake_step(i, 3, 1, 1);
        ASSERT_EQ(run(step), expected_sum(step)) << "seed " << i;
    }
}

}  // namespace k3pod::testing

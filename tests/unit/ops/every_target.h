#pragma once
// Runs a test once for each instruction set that the ops were compiled for and this machine has.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hwy/highway.h"
#include "tests/support/random_values.h"
#include "tests/support/tolerance.h"

namespace k3pod::ops {

inline std::vector<int64_t> usable_targets() {
    std::vector<int64_t> targets;
    for (const int64_t target :
         {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_SSE4}, int64_t{HWY_NEON}}) {
        if ((HWY_TARGETS & hwy::SupportedTargets() & target) != 0) targets.push_back(target);
    }
    if (targets.empty() || targets.back() != HWY_STATIC_TARGET) {
        targets.push_back(HWY_STATIC_TARGET);
    }
    return targets;
}

class EveryTarget : public ::testing::TestWithParam<int64_t> {
  protected:
    void SetUp() override {
        hwy::SetSupportedTargetsForTest(GetParam());
        hwy::GetChosenTarget().DeInit();
    }
    void TearDown() override {
        hwy::SetSupportedTargetsForTest(0);
        hwy::GetChosenTarget().DeInit();
    }

    testing::RandomValues random;
    ::testing::ScopedTrace trace{__FILE__, __LINE__, random.trace()};
};

#define K3POD_ON_EVERY_TARGET(suite)                                      \
    INSTANTIATE_TEST_SUITE_P(                                             \
        Target, suite, ::testing::ValuesIn(k3pod::ops::usable_targets()), \
        [](const auto& target) { return std::string(hwy::TargetName(target.param)); })

}  // namespace k3pod::ops

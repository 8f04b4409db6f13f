// What predict says against what a pod does (tests/support/predict_agreement.h).

#include "tests/support/predict_agreement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace k3pod::testing {
namespace {

constexpr int kRounds = 5;
constexpr double kTolerance = 0.15;

TEST(PredictAgreement, predicted_and_measured_time_per_token_agree_within_15_percent) {
    const auto agreement = measure_agreement(kRounds);
    ASSERT_TRUE(agreement) << agreement.status().to_string();
    ASSERT_EQ(agreement->cases.size(), 8u);
    for (const AgreementCase& one : agreement->cases) {
        const std::string line = fmt::format(
            "{:6} + {:.1f} ms an exchange: predicted {:.1f} ms a token, measured {:.1f} ({:+.1f} "
            "%)",
            one.mode, one.delay_s * 1e3, one.predicted_s * 1e3, one.measured_s * 1e3,
            100 * (one.predicted_s / one.measured_s - 1));
        std::puts(line.c_str());
        EXPECT_NEAR(one.predicted_s, one.measured_s, kTolerance * one.measured_s) << line;
    }
}

}  // namespace
}  // namespace k3pod::testing

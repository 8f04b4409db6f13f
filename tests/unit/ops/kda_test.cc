#include "k3pod/ops/kda.h"

#include <cmath>
#include <cstring>

#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::f32_sum_tolerance;
using testing::poisoned;

double exact_sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

class Kda : public EveryTarget {};

TEST_P(Kda, convolves_each_channel_over_the_last_four_inputs) {
    for (const int64_t width : {1, 5, 64, 131}) {
        constexpr int64_t kTokens = 6;
        const auto weight = random.normals(width * 4);
        const auto x = random.normals(kTokens * width);
        const auto before = random.normals(3 * width);
        auto window = before;
        auto y = poisoned(kTokens * width);
        kda_short_conv({.tokens = kTokens, .weight = weight, .x = x, .window = window, .y = y});
        const auto input = [&](int64_t t, int64_t c) {
            return double{t < 0 ? before[(t + 3) * width + c] : x[t * width + c]};
        };
        for (int64_t c = 0; c < width; ++c) {
            for (int64_t t = 0; t < kTokens; ++t) {
                double sum = 0;
                double magnitude = 0;
                for (int64_t j = 0; j < 4; ++j) {
                    const double term = weight[c * 4 + j] * input(t - 3 + j, c);
                    sum += term;
                    magnitude += std::abs(term);
                }
                ASSERT_NEAR(y[t * width + c], sum * exact_sigmoid(sum),
                            f32_sum_tolerance(4, 2 * magnitude));
            }
            for (int64_t i = 0; i < 3; ++i) {
                ASSERT_EQ(window[i * width + c], input(kTokens - 3 + i, c));
            }
        }
    }
}

TEST_P(Kda, convolution_of_the_parts_equals_that_of_the_whole) {
    constexpr int64_t kWidth = 37;
    constexpr int64_t kTokens = 9;
    const auto weight = random.normals(kWidth * 4);
    const auto x = random.normals(kTokens * kWidth);
    std::vector<float> window(3 * kWidth, 0.0f);
    auto whole = poisoned(kTokens * kWidth);
    kda_short_conv({.tokens = kTokens, .weight = weight, .x = x, .window = window, .y = whole});
    std::vector<float> parts_window(3 * kWidth, 0.0f);
    auto parts = x;  // in place
    for (int64_t t = 0; t < kTokens;) {
        const int64_t n = t == 0 ? 2 : t == 2 ? 1 : kTokens - t;
        const auto span = std::span(parts).subspan(t * kWidth, n * kWidth);
        kda_short_conv({.tokens = static_cast<int32_t>(n),
                        .weight = weight,
                        .x = span,
                        .window = parts_window,
                        .y = span});
        t += n;
    }
    EXPECT_EQ(parts, whole);
    EXPECT_EQ(parts_window, window);
}

TEST_P(Kda, normalizes_q_and_k_with_eps_on_the_sum) {
    constexpr int64_t kDim = 128;
    constexpr float kEps = 1e-6f;
    auto q = random.normals(5 * kDim, 1e-4f);  // small enough for eps to matter
    auto k = random.normals(5 * kDim);
    const auto q_before = q;
    const auto k_before = k;
    kda_normalize_qk(kDim, kEps, q, k);
    for (int64_t row = 0; row < 5; ++row) {
        double q_sum = 0;
        double k_sum = 0;
        for (int64_t i = row * kDim; i < (row + 1) * kDim; ++i) {
            q_sum += double{q_before[i]} * q_before[i];
            k_sum += double{k_before[i]} * k_before[i];
        }
        for (int64_t i = row * kDim; i < (row + 1) * kDim; ++i) {
            const double q_exact = q_before[i] / std::sqrt(q_sum + double{kEps}) / std::sqrt(128.0);
            const double k_exact = k_before[i] / std::sqrt(k_sum + double{kEps});
            ASSERT_NEAR(q[i], q_exact, f32_sum_tolerance(kDim, std::abs(q_exact)));
            ASSERT_NEAR(k[i], k_exact, f32_sum_tolerance(kDim, std::abs(k_exact)));
        }
    }
}

TEST_P(Kda, normalizes_zeros_to_zeros) {
    std::vector<float> q(32, 0.0f), k(32, 0.0f);
    kda_normalize_qk(16, 1e-6f, q, k);
    EXPECT_EQ(q, std::vector<float>(32, 0.0f));
    EXPECT_EQ(k, std::vector<float>(32, 0.0f));
}

TEST_P(Kda, gate_is_bounded_and_shares_one_rate_per_head) {
    constexpr int64_t kHeads = 3;
    constexpr int64_t kDim = 21;
    const std::vector<float> a_log{-1.0f, 0.0f, 1.5f};
    const auto dt_bias = random.normals(kHeads * kDim);
    const auto f = random.normals(2 * kHeads * kDim, 3.0f);
    auto log_decay = poisoned(2 * kHeads * kDim);
    kda_gate({.tokens = 2,
              .f = f,
              .a_log = a_log,
              .dt_bias = dt_bias,
              .lower_bound = -5.0f,
              .log_decay = log_decay});
    for (int64_t t = 0; t < 2; ++t) {
        for (int64_t c = 0; c < kHeads * kDim; ++c) {
            const double x =
                std::exp(double{a_log[c / kDim]}) * (double{f[t * kHeads * kDim + c]} + dt_bias[c]);
            const double exact = -5.0 * exact_sigmoid(x);
            // The rounding of x moves the sigmoid by up to |x| roundings.
            ASSERT_NEAR(log_decay[t * kHeads * kDim + c], exact,
                        f32_sum_tolerance(1, (4 + std::abs(x)) * std::abs(exact)));
        }
    }
}

TEST_P(Kda, gate_stays_in_its_bounds_for_extreme_input) {
    std::vector<float> f{1e30f, -1e30f};
    kda_gate({.tokens = 1,
              .f = f,
              .a_log = std::vector<float>{0.0f},
              .dt_bias = std::vector<float>{0.0f, 0.0f},
              .lower_bound = -5.0f,
              .log_decay = f});
    EXPECT_EQ(f[0], -5.0f);
    EXPECT_NEAR(f[1], 0.0f, 1e-37f);
}

TEST_P(Kda, beta_is_the_sigmoid) {
    std::vector<float> beta{0.0f, 2.0f, -2.0f};
    kda_beta(beta);
    EXPECT_NEAR(beta[0], 0.5, 1e-7);
    EXPECT_NEAR(beta[1], 0.8807970779778823, 1e-6);
    EXPECT_NEAR(beta[2], 0.11920292202211755, 1e-6);
}

TEST_P(Kda, gated_norm_norms_each_head_and_gates_each_channel) {
    constexpr int64_t kRows = 6;  // tokens x heads
    constexpr int64_t kDim = 37;
    const auto o = random.normals(kRows * kDim, 0.1f);
    const auto g = random.normals(kRows * kDim, 3.0f);
    const auto weight = random.normals(kDim);
    auto y = poisoned(kRows * kDim);
    kda_gated_norm({.tokens = 2, .o = o, .g = g, .weight = weight, .eps = 1e-5f, .y = y});
    for (int64_t row = 0; row < kRows; ++row) {
        double squares = 0;
        for (int64_t i = 0; i < kDim; ++i) squares += double{o[row * kDim + i]} * o[row * kDim + i];
        const double scale = 1.0 / std::sqrt(squares / kDim + 1e-5);
        for (int64_t i = 0; i < kDim; ++i) {
            const int64_t at = row * kDim + i;
            const double exact = weight[i] * o[at] * scale * exact_sigmoid(g[at]);
            ASSERT_NEAR(y[at], exact, f32_sum_tolerance(kDim, std::abs(exact)));
        }
    }
    auto in_place = o;
    kda_gated_norm(
        {.tokens = 2, .o = in_place, .g = g, .weight = weight, .eps = 1e-5f, .y = in_place});
    EXPECT_EQ(in_place, y);
}

K3POD_ON_EVERY_TARGET(Kda);

}  // namespace
}  // namespace k3pod::ops

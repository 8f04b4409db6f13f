#include "k3pod/ops/elementwise.h"

#include <bit>
#include <cmath>

#include "k3pod/ops/mlp.h"
#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::poisoned;

// Dense near zero, out to where every function here is flat.
std::vector<float> grid() {
    std::vector<float> values{0.0f};
    for (float magnitude = 1e-6f; magnitude < 80.0f; magnitude *= 1.037f) {
        values.push_back(magnitude);
        values.push_back(-magnitude);
    }
    return values;
}

double exact_sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

class Elementwise : public EveryTarget {};

TEST_P(Elementwise, sigmoid_is_within_a_millionth) {
    const auto x = grid();
    auto y = poisoned(std::ssize(x));
    sigmoid(x, y);
    for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(y[i], exact_sigmoid(x[i]), 1e-6 * exact_sigmoid(x[i])) << "at " << x[i];
    }
}

TEST_P(Elementwise, silu_is_within_a_millionth) {
    const auto x = grid();
    auto y = poisoned(std::ssize(x));
    silu(x, y);
    for (size_t i = 0; i < x.size(); ++i) {
        const double exact = x[i] * exact_sigmoid(x[i]);
        ASSERT_NEAR(y[i], exact, 1e-6 * std::abs(exact)) << "at " << x[i];
    }
}

TEST_P(Elementwise, situ_is_within_two_millionths) {
    const auto g = grid();
    const auto u = random.normals(std::ssize(g), 30.0f);
    auto y = poisoned(std::ssize(g));
    situ({4.0f, 25.0f}, g, u, y);
    for (size_t i = 0; i < g.size(); ++i) {
        const double exact =
            4.0 * std::tanh(g[i] / 4.0) * exact_sigmoid(g[i]) * 25.0 * std::tanh(u[i] / 25.0);
        ASSERT_NEAR(y[i], exact, 2e-6 * std::abs(exact)) << "gate " << g[i] << " up " << u[i];
    }
}

TEST_P(Elementwise, situ_stays_within_its_bounds) {
    const std::vector<float> g{1e30f, 1e4f, -1e30f, 1e30f, 0.0f};
    const std::vector<float> u{1e30f, -1e4f, 1e30f, -1e30f, 1e30f};
    auto y = poisoned(5);
    situ({4.0f, 25.0f}, g, u, y);
    EXPECT_FLOAT_EQ(y[0], 100.0f);
    EXPECT_FLOAT_EQ(y[1], -100.0f);
    EXPECT_NEAR(y[2], 0.0f, 1e-30f);
    EXPECT_FLOAT_EQ(y[3], -100.0f);
    EXPECT_EQ(y[4], 0.0f);
}

TEST_P(Elementwise, saturates_without_overflow_and_keeps_nan) {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> x{1e30f, -1e30f, infinity, -infinity, std::nanf("")};
    auto y = poisoned(5);
    sigmoid(x, y);
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_NEAR(y[1], 0.0f, 1e-37f);
    EXPECT_EQ(y[2], 1.0f);
    EXPECT_NEAR(y[3], 0.0f, 1e-37f);
    EXPECT_TRUE(std::isnan(y[4]));
    situ({4.0f, 25.0f}, x, std::vector<float>(5, 1.0f), y);
    EXPECT_TRUE(std::isnan(y[4]));
    situ({4.0f, 25.0f}, std::vector<float>(5, 1.0f), x, y);
    EXPECT_TRUE(std::isnan(y[4]));
}

TEST_P(Elementwise, works_in_place_at_any_length) {
    for (const int64_t n : {0, 1, 3, 16, 37}) {
        const auto x = random.normals(n);
        auto apart = poisoned(n);
        sigmoid(x, apart);
        auto in_place = x;
        sigmoid(in_place, in_place);
        EXPECT_EQ(apart, in_place);
    }
}

TEST_P(Elementwise, adds) {
    std::vector<float> y{1, 2, 3};
    add(std::vector<float>{0.5f, -2.0f, 1.0f}, y);
    EXPECT_EQ(y, (std::vector<float>{1.5f, 0.0f, 4.0f}));
}

TEST_P(Elementwise, rounds_to_bf16_like_the_scalar_conversion) {
    std::vector<float> x;
    for (const uint32_t upper : {0x0000u, 0x0001u, 0x007fu, 0x0080u, 0x3f80u, 0x3f81u, 0x7f7fu,
                                 0x7f80u, 0x7f81u, 0x7fbfu, 0x7fc0u, 0x7fffu}) {
        for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
            for (const uint32_t sign : {0x0000u, 0x8000u}) {
                x.push_back(std::bit_cast<float>((sign | upper) << 16 | lower));
            }
        }
    }
    std::vector<Bf16> y(x.size());
    to_bf16(x, y);
    for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(y[i].bits, k3pod::to_bf16(x[i]).bits) << std::bit_cast<uint32_t>(x[i]);
    }
}

TEST_P(Elementwise, widens_bf16_at_any_length) {
    for (const int64_t n : {0, 1, 3, 16, 37}) {
        std::vector<Bf16> x(static_cast<size_t>(n));
        for (Bf16& v : x) v = k3pod::to_bf16(random.normals(1)[0]);
        auto y = poisoned(n);
        to_f32(x, y);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], k3pod::to_f32(x[i]));
    }
}

K3POD_ON_EVERY_TARGET(Elementwise);

}  // namespace
}  // namespace k3pod::ops

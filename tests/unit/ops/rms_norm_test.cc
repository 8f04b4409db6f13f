#include "k3pod/ops/rms_norm.h"

#include <cmath>

#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::f32_sum_tolerance;
using testing::poisoned;

class RmsNorm : public EveryTarget {};

TEST_P(RmsNorm, divides_each_row_by_its_root_mean_square) {
    constexpr float kEps = 1e-5f;
    for (const int64_t width : {1, 7, 64, 259}) {
        const auto weight = random.normals(width);
        const auto x = random.normals(3 * width, 0.01f);
        auto y = poisoned(3 * width);
        rms_norm(3, weight, kEps, x, y);
        for (int64_t t = 0; t < 3; ++t) {
            double squares = 0;
            for (int64_t i = 0; i < width; ++i)
                squares += double{x[t * width + i]} * x[t * width + i];
            const double scale =
                1.0 / std::sqrt(squares / static_cast<double>(width) + double{kEps});
            for (int64_t i = 0; i < width; ++i) {
                const double exact = weight[i] * (x[t * width + i] * scale);
                ASSERT_NEAR(y[t * width + i], exact, f32_sum_tolerance(width, std::abs(exact)));
            }
        }
    }
}

TEST_P(RmsNorm, adds_eps_inside_the_root) {
    std::vector<float> y{3.0f, -3.0f};  // mean square 9
    rms_norm(1, std::vector<float>{2.0f, 2.0f}, 7.0f, y, y);
    EXPECT_EQ(y, (std::vector<float>{1.5f, -1.5f}));  // 2 * 3 / sqrt(9 + 7)
}

TEST_P(RmsNorm, gives_zeros_for_zeros) {
    std::vector<float> y(40, 0.0f);
    rms_norm(2, std::vector<float>(20, 1.0f), 1e-5f, y, y);
    EXPECT_EQ(y, std::vector<float>(40, 0.0f));
}

K3POD_ON_EVERY_TARGET(RmsNorm);

}  // namespace
}  // namespace k3pod::ops

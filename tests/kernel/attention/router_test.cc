#include "k3pod/kernels/router.h"

#include <limits>
#include <set>

#include "k3pod/ops/router.h"
#include "tests/kernel/attention/compare.h"
#include "tests/support/gpu_test.h"
#include "tests/support/random_values.h"

namespace k3pod {
namespace {

using testing::from_gpu;
using testing::poisoned_on_gpu;
using testing::to_gpu;

struct Routing {
    std::vector<uint16_t> experts;
    std::vector<float> weights;
};

class RouterKernel : public testing::GpuTest {
  protected:
    Routing route_on_gpu(int32_t rows, int32_t top_k, const std::vector<float>& logits,
                         const std::vector<float>& bias, float scaling = 1.0f) {
        const auto logits_gpu = to_gpu(logits), bias_gpu = to_gpu(bias);
        const auto experts = poisoned_on_gpu<uint16_t>(int64_t{rows} * top_k);
        const auto weights = poisoned_on_gpu<float>(int64_t{rows} * top_k);
        const Status done = kernels::route({.rows = rows,
                                            .num_experts = static_cast<int32_t>(bias.size()),
                                            .top_k = top_k,
                                            .logits = logits_gpu.as<float>(),
                                            .bias = bias_gpu.as<float>(),
                                            .scaling = scaling,
                                            .experts = experts.as<uint16_t>(),
                                            .weights = weights.as<float>()},
                                           stream());
        EXPECT_TRUE(done.is_ok()) << done.to_string();
        synchronize();
        return {from_gpu<uint16_t>(experts), from_gpu<float>(weights)};
    }
    static Routing route_on_cpu(int32_t rows, int32_t top_k, const std::vector<float>& logits,
                                const std::vector<float>& bias, float scaling = 1.0f) {
        const auto picks = static_cast<size_t>(rows * top_k);
        Routing routing{std::vector<uint16_t>(picks), std::vector<float>(picks)};
        ops::route({.tokens = rows,
                    .num_experts = static_cast<int32_t>(bias.size()),
                    .top_k = top_k,
                    .logits = logits,
                    .bias = bias,
                    .scaling = scaling,
                    .experts = routing.experts,
                    .weights = routing.weights});
        return routing;
    }
    testing::RandomValues random;
};

TEST_F(RouterKernel, gives_the_ids_of_its_twin) {
    SCOPED_TRACE(random.trace());
    struct Shape {
        int32_t rows, experts, top_k;
    };
    for (const Shape s : {Shape{7, 896, 16},
                          {3, 32, 4},
                          {2, 5, 5},
                          {3, 1, 1},
                          {2, 100, 64},
                          {2, 4096, 33},
                          {64, 896, 16}}) {
        SCOPED_TRACE(::testing::Message() << s.experts << " experts, top " << s.top_k);
        // Steps of 2^-6 are farther apart than sigmoids differ, and many of them are equal.
        auto logits = random.normals(int64_t{s.rows} * s.experts, 2.0f);
        for (float& v : logits) v = std::round(v * 64) / 64;
        const std::vector<float> bias(static_cast<size_t>(s.experts), 0.25f);
        const Routing want = route_on_cpu(s.rows, s.top_k, logits, bias, 2.5f);
        const Routing got = route_on_gpu(s.rows, s.top_k, logits, bias, 2.5f);
        EXPECT_EQ(got.experts, want.experts);
        EXPECT_LT(testing::relative_error(got.weights, want.weights), testing::kF32Close);
    }
}

TEST_F(RouterKernel, chooses_by_the_bias_and_weighs_without_it) {
    const std::vector<float> logits{0, 1, 2, 3};
    const std::vector<float> bias{10, 0, 0, 5};
    const Routing got = route_on_gpu(1, 2, logits, bias);
    EXPECT_EQ(got.experts, (std::vector<uint16_t>{0, 3}));
    EXPECT_NEAR(got.weights[0], 0.5 / (0.5 + 0.95257413), 1e-6);
}

TEST_F(RouterKernel, breaks_ties_towards_the_lower_id) {
    std::vector<float> logits(896, -1.0f);
    logits[800] = 2.0f;
    const std::vector<float> bias(896, 0.0f);
    const Routing got = route_on_gpu(1, 16, logits, bias);
    EXPECT_EQ(got.experts,
              (std::vector<uint16_t>{800, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
}

TEST_F(RouterKernel, gives_a_row_of_nan_distinct_ids_and_nan_weights) {
    const std::vector<float> logits(896, std::numeric_limits<float>::quiet_NaN());
    const Routing got = route_on_gpu(1, 16, logits, std::vector<float>(896, 0.1f));
    EXPECT_EQ(std::set<uint16_t>(got.experts.begin(), got.experts.end()).size(), 16u);
    for (const uint16_t e : got.experts) EXPECT_LT(e, 896);
    for (const float w : got.weights) EXPECT_TRUE(std::isnan(w));
}

TEST_F(RouterKernel, refuses_more_picks_than_experts) {
    const Status refused = kernels::route({.rows = 1, .num_experts = 4, .top_k = 5}, stream());
    EXPECT_EQ(refused.to_string(),
              "invalid_argument: route: top_k is 5; it must be in [1, min(num_experts, 64)]");
}

}  // namespace
}  // namespace k3pod

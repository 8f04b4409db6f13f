#include "k3pod/ops/mlp.h"

#include <cmath>
#include <cstring>

#include "tests/support/weight_matrices.h"
#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::f32_sum_tolerance;
using testing::poisoned;
using testing::random_matrix;
using testing::RandomValues;
using testing::weight_at;

constexpr SituParams kSitu{4.0f, 25.0f};

struct Mlp3 {
    Matrix gate, up, down;
};

Mlp3 random_mlp(WeightFormat format, int32_t hidden, int32_t width, RandomValues& random) {
    return {random_matrix(format, width, hidden, random),
            random_matrix(format, width, hidden, random),
            random_matrix(format, hidden, width, random)};
}

double exact_situ(double g, double u) {
    return 4 * std::tanh(g / 4) / (1 + std::exp(-g)) * 25 * std::tanh(u / 25);
}

// Columns [begin, end) of the width only, as a shard computes them. Also the sum of absolute terms.
struct Exact {
    std::vector<double> y, magnitude;
};

Exact exact_mlp(const Mlp3& m, std::span<const float> x, int32_t begin, int32_t end) {
    const int32_t hidden = m.down.view().rows;
    Exact exact{std::vector<double>(hidden, 0.0), std::vector<double>(hidden, 0.0)};
    for (int32_t w = begin; w < end; ++w) {
        double g = 0;
        double u = 0;
        for (int32_t i = 0; i < hidden; ++i) {
            g += weight_at(m.gate.view(), w, i) * x[i];
            u += weight_at(m.up.view(), w, i) * x[i];
        }
        for (int32_t i = 0; i < hidden; ++i) {
            const double term = weight_at(m.down.view(), i, w) * exact_situ(g, u);
            exact.y[i] += term;
            exact.magnitude[i] +=
                std::abs(weight_at(m.down.view(), i, w)) * (std::abs(exact_situ(g, u)) + 1);
        }
    }
    return exact;
}

class Mlp : public EveryTarget {};

TEST_P(Mlp, runs_down_of_situ_of_gate_and_up) {
    constexpr int32_t kHidden = 96;
    for (const WeightFormat format : testing::kAllFormats) {
        const int32_t width = testing::is_fp4(format) ? 64 : 75;
        const Mlp3 m = random_mlp(format, kHidden, width, random);
        for (const int32_t tokens : {1, 3}) {
            const auto x = random.normals(int64_t{tokens} * kHidden, 0.1f);
            auto scratch = poisoned(int64_t{2} * tokens * width);
            auto y = poisoned(int64_t{tokens} * kHidden);
            mlp({tokens, m.gate.view(), m.up.view(), m.down.view(), kSitu, x, scratch, y});
            for (int32_t t = 0; t < tokens; ++t) {
                const auto exact =
                    exact_mlp(m, std::span(x).subspan(t * kHidden, kHidden), 0, width);
                for (int32_t i = 0; i < kHidden; ++i) {
                    ASSERT_NEAR(y[t * kHidden + i], exact.y[i],
                                f32_sum_tolerance(kHidden + width, exact.magnitude[i]));
                }
            }
        }
    }
}

class GroupedExperts : public EveryTarget {
  protected:
    static constexpr int32_t kLatent = 64;
    static constexpr int32_t kRows = 80;  // more than one pass of gathered rows

    GroupedExperts() {
        for (const float v : random.normals(int64_t{kRows} * kLatent))
            latents.push_back(to_bf16(v));
    }

    std::vector<float> run(int32_t rows, std::span<const Bf16> z,
                           std::span<const ExpertGroup> groups) {
        auto out = poisoned(int64_t{rows} * kLatent);
        auto scratch = poisoned(grouped_experts_scratch_floats(kLatent, 96));
        grouped_experts({rows, kLatent, z, groups, kSitu, scratch, out});
        return out;
    }

    static ExpertGroup group(const Mlp3& m, std::span<const WeightedRow> rows) {
        return {m.gate.view(), m.up.view(), m.down.view(), rows};
    }

    std::vector<Bf16> latents;
};

TEST_P(GroupedExperts, adds_weighted_experts_to_the_rows_that_name_them) {
    const Mlp3 first = random_mlp(WeightFormat::kMxfp4, kLatent, 96, random);
    const Mlp3 second = random_mlp(WeightFormat::kNvfp4, kLatent, 32, random);
    const std::vector<WeightedRow> first_rows{{0, 0.25f}, {3, 0.5f}};
    const std::vector<WeightedRow> second_rows{{3, 2.0f}, {4, 1.0f}};
    const std::vector<ExpertGroup> groups{group(first, first_rows), group(second, second_rows)};
    const auto out = run(5, std::span(latents).first(5 * kLatent), groups);

    const auto input = [&](int32_t row) {
        std::vector<float> z;
        for (int32_t i = 0; i < kLatent; ++i) z.push_back(to_f32(latents[row * kLatent + i]));
        return z;
    };
    for (int32_t row = 0; row < 5; ++row) {
        std::vector<double> sum(kLatent, 0.0), magnitude(kLatent, 0.0);
        const auto accumulate = [&](const Mlp3& m, const std::vector<WeightedRow>& rows) {
            for (const WeightedRow& r : rows) {
                if (r.row != row) continue;
                const auto exact = exact_mlp(m, input(row), 0, m.gate.view().rows);
                for (int32_t i = 0; i < kLatent; ++i) {
                    sum[i] += r.weight * exact.y[i];
                    magnitude[i] += r.weight * exact.magnitude[i];
                }
            }
        };
        accumulate(first, first_rows);
        accumulate(second, second_rows);
        for (int32_t i = 0; i < kLatent; ++i) {
            ASSERT_NEAR(out[row * kLatent + i], sum[i],
                        f32_sum_tolerance(kLatent + 96, 10 * magnitude[i]))
                << "row " << row;
        }
    }
    for (int32_t i = 0; i < kLatent; ++i) {
        EXPECT_EQ(out[1 * kLatent + i], 0.0f) << "row 1 has no expert";
        EXPECT_EQ(out[2 * kLatent + i], 0.0f) << "row 2 has no expert";
    }
}

TEST_P(GroupedExperts, gives_a_row_the_same_bits_alone_and_among_many) {
    const Mlp3 m = random_mlp(WeightFormat::kMxfp4, kLatent, 96, random);
    std::vector<WeightedRow> all;
    for (int32_t r = 0; r < kRows; ++r) all.push_back({r, random.uniform(0.0f, 1.0f)});
    const std::vector<ExpertGroup> together{group(m, all)};
    const auto out = run(kRows, latents, together);
    for (int32_t r = 0; r < kRows; ++r) {
        const std::vector<WeightedRow> one{{0, all[r].weight}};
        const std::vector<ExpertGroup> alone{group(m, one)};
        const auto row = run(1, std::span(latents).subspan(r * kLatent, kLatent), alone);
        ASSERT_EQ(std::memcmp(row.data(), out.data() + r * kLatent, kLatent * sizeof(float)), 0)
            << "row " << r;
    }
}

TEST_P(GroupedExperts, gives_zeros_without_groups) {
    EXPECT_EQ(run(2, std::span(latents).first(2 * kLatent), {}),
              std::vector<float>(2 * kLatent, 0.0f));
}

K3POD_ON_EVERY_TARGET(Mlp);
K3POD_ON_EVERY_TARGET(GroupedExperts);

}  // namespace
}  // namespace k3pod::ops

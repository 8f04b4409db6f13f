#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "k3pod/experts/expert_store.h"
#include "tests/support/random_values.h"
#include "tests/support/tolerance.h"
#include "tests/support/weight_matrices.h"
#include "tests/unit/experts/tiny_checkpoint.h"

namespace k3pod {
namespace {

using ::testing::HasSubstr;
using testing::poisoned;
using testing::weight_at;
using wire::WireEntry;

constexpr int32_t kLayer = 5;
constexpr int32_t kRows = 6;

// Row 3 has no entry, rows share experts 2 and 30.
const std::vector<WireEntry> kEntries{{0, 2, 0.5f},    {1, 2, 0.25f},  {5, 7, 1.0f},
                                      {0, 30, 0.125f}, {2, 30, 0.75f}, {4, 31, 0.3f}};

class ExpertRunnerTest : public ::testing::Test {
  protected:
    ExpertRunnerTest() {
        for (const float v : random.normals(int64_t{kRows} * kTinyLatent)) {
            latents.push_back(to_bf16(v));
        }
    }

    Status status_of(ExpertRunner& runner, int32_t rows, std::span<const WireEntry> entries,
                     std::span<float> out) {
        const auto size = static_cast<size_t>(rows) * kTinyLatent;
        return runner.run(kLayer, rows, std::span(latents).first(size), entries, out);
    }

    std::vector<float> run(const ExpertStore& store, std::span<const WireEntry> entries) {
        ExpertRunner runner(store, kRows);
        auto out = poisoned(int64_t{kRows} * kTinyLatent);
        const Status status = status_of(runner, kRows, entries, out);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        return out;
    }

    Status refusal(std::span<const WireEntry> entries, int32_t rows = kRows) {
        const auto store = tiny.load(layer_shards(kLayer, 0, kTinyWidth)).value();
        ExpertRunner runner(*store, kRows);
        std::vector<float> out(static_cast<size_t>(rows) * kTinyLatent);
        latents.resize(out.size());
        return status_of(runner, rows, entries, out);
    }

    testing::RandomValues random;
    ::testing::ScopedTrace trace{__FILE__, __LINE__, random.trace()};
    TinyCheckpoint tiny = TinyCheckpoint::open();
    std::vector<Bf16> latents;
};

double exact_situ(double g, double u) {
    return 4 * std::tanh(g / 4) / (1 + std::exp(-g)) * 25 * std::tanh(u / 25);
}

TEST_F(ExpertRunnerTest, sums_weighted_experts_per_row) {
    const auto store = tiny.load(layer_shards(kLayer, 0, kTinyWidth)).value();
    const auto out = run(*store, kEntries);
    std::vector<double> exact(out.size(), 0.0), magnitude(out.size(), 0.0);
    for (const WireEntry& entry : kEntries) {
        const HeldShard& w = store->find(kLayer, entry.expert)[0];
        for (int32_t c = 0; c < kTinyWidth; ++c) {
            double g = 0;
            double u = 0;
            for (int32_t i = 0; i < kTinyLatent; ++i) {
                const double z = to_f32(latents[entry.row * kTinyLatent + i]);
                g += weight_at(w.w1, c, i) * z;
                u += weight_at(w.w3, c, i) * z;
            }
            for (int32_t i = 0; i < kTinyLatent; ++i) {
                const double weight = entry.weight * weight_at(w.w2, i, c);
                exact[entry.row * kTinyLatent + i] += weight * exact_situ(g, u);
                magnitude[entry.row * kTinyLatent + i] +=
                    std::abs(weight) * (std::abs(exact_situ(g, u)) + 1);
            }
        }
    }
    for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], exact[i], testing::f32_sum_tolerance(256, 4 * magnitude[i])) << i;
    }
}

TEST_F(ExpertRunnerTest, leaves_rows_without_entries_at_zero) {
    const auto store = tiny.load(layer_shards(kLayer, 0, kTinyWidth)).value();
    const auto out = run(*store, kEntries);
    for (int32_t i = 0; i < kTinyLatent; ++i) ASSERT_EQ(out[3 * kTinyLatent + i], 0.0f);
    for (const float v : run(*store, {})) ASSERT_EQ(v, 0.0f);
}

TEST_F(ExpertRunnerTest, slices_add_up_to_the_whole) {
    const auto whole_store = tiny.load(layer_shards(kLayer, 0, kTinyWidth)).value();
    const auto whole = run(*whole_store, kEntries);
    std::vector<float> sum(whole.size(), 0.0f);
    double largest = 0;
    for (const auto& [begin, end] : {std::pair{0, 32}, {32, 96}, {96, 128}}) {
        const auto store = tiny.load(layer_shards(kLayer, begin, end)).value();
        const auto part = run(*store, kEntries);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (const float v : whole) largest = std::max(largest, std::abs(double{v}));
    ASSERT_GT(largest, 0.0);
    for (size_t i = 0; i < sum.size(); ++i) {
        ASSERT_NEAR(sum[i], whole[i], testing::f32_sum_tolerance(kTinyWidth, 4 * largest)) << i;
    }
}

TEST_F(ExpertRunnerTest, slices_on_one_holder_add_up_too) {
    const auto whole_store = tiny.load(layer_shards(kLayer, 0, kTinyWidth)).value();
    auto shards = layer_shards(kLayer, 0, 96);
    const auto rest = layer_shards(kLayer, 96, 128);
    shards.insert(shards.end(), rest.begin(), rest.end());
    const auto sliced_store = tiny.load(shards).value();
    const auto whole = run(*whole_store, kEntries);
    const auto sliced = run(*sliced_store, kEntries);
    double largest = 0;
    for (const float v : whole) largest = std::max(largest, std::abs(double{v}));
    for (size_t i = 0; i < whole.size(); ++i) {
        ASSERT_NEAR(sliced[i], whole[i], testing::f32_sum_tolerance(kTinyWidth, 4 * largest)) << i;
    }
}

TEST_F(ExpertRunnerTest, gives_a_row_the_same_bits_without_the_other_rows) {
    const auto store = tiny.load(layer_shards(kLayer, 0, kTinyWidth)).value();
    const auto together = run(*store, kEntries);
    const std::vector<WireEntry> of_row_zero{kEntries[0], kEntries[3]};
    const auto alone = run(*store, of_row_zero);
    EXPECT_EQ(std::memcmp(alone.data(), together.data(), kTinyLatent * sizeof(float)), 0);
}

TEST_F(ExpertRunnerTest, refuses_an_expert_that_is_not_held) {
    const auto store = tiny.load(std::vector<Shard>{{kLayer, 2, 0, 128}}).value();
    ExpertRunner runner(*store, kRows);
    auto out = poisoned(int64_t{kRows} * kTinyLatent);
    const Status status = status_of(runner, kRows, kEntries, out);
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("layer 5 expert 7"));
    // The runner stays usable.
    EXPECT_TRUE(status_of(runner, kRows, std::span(kEntries).first(2), out).is_ok());
}

TEST_F(ExpertRunnerTest, refuses_rows_past_the_frame) {
    const Status status = refusal(std::vector<WireEntry>{{6, 2, 1.0f}});
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("row 6 of a frame of 6 rows"));
}

TEST_F(ExpertRunnerTest, refuses_entries_out_of_order_or_twice) {
    const Status unsorted = refusal(std::vector<WireEntry>{{0, 3, 1.0f}, {0, 2, 1.0f}});
    EXPECT_THAT(unsorted.message(), HasSubstr("sorted by expert"));
    const Status twice = refusal(std::vector<WireEntry>{{1, 3, 1.0f}, {1, 3, 1.0f}});
    EXPECT_EQ(twice.code(), Code::kInvalidArgument);
    EXPECT_THAT(twice.message(), HasSubstr("none twice"));
}

TEST_F(ExpertRunnerTest, refuses_frames_over_its_limits) {
    EXPECT_THAT(refusal({}, 7).message(), HasSubstr("7 rows, the limit is 6"));
    std::vector<WireEntry> many;
    for (uint16_t expert = 0; expert < 5; ++expert) {
        for (uint16_t row = 0; row < kRows; ++row) many.push_back({row, expert, 0.1f});
    }
    EXPECT_THAT(refusal(many).message(), HasSubstr("30 entries"));
}

}  // namespace
}  // namespace k3pod

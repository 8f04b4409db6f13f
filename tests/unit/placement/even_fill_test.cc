#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "k3pod/placement/placement.h"

namespace k3pod {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 50;

// k3-tiny: 8 MoE layers of 32 experts, width 128.
constexpr PlacementShape kTiny{
    .first_layer = 1, .num_layers = 8, .num_experts = 32, .width = 128, .bytes_per_column = 216};

std::vector<HolderBudget> holders(int count, int64_t budget_bytes) {
    std::vector<HolderBudget> out;
    for (int i = 1; i <= count; ++i) out.push_back({"spark-" + std::to_string(i), budget_bytes});
    return out;
}

Placement place(const PlacementShape& shape, std::span<const HolderBudget> budgets,
                PlacementMode mode) {
    auto placement = place_evenly(shape, budgets, mode, 1);
    EXPECT_TRUE(placement) << placement.status().to_string();
    return placement ? std::move(*placement) : Placement{};
}

// Columns of each holder in one layer.
std::map<int32_t, int64_t> columns_in_layer(const Placement& placement, int32_t layer) {
    std::map<int32_t, int64_t> columns;
    for (int32_t expert = 0; expert < placement.num_experts; ++expert) {
        for (const PlacedSlice& s : placement.of(layer, expert))
            columns[s.holder] += s.end - s.begin;
    }
    return columns;
}

using Slices = std::vector<PlacedSlice>;

Slices slices_of(const Placement& placement, int32_t layer, int32_t expert) {
    const auto span = placement.of(layer, expert);
    return {span.begin(), span.end()};
}

TEST(EvenFill, whole_experts_are_dealt_in_turn) {
    const Placement placement = place(kTiny, holders(2, kNoLimit), PlacementMode::kWhole);
    EXPECT_EQ(placement.holders, (std::vector<std::string>{"spark-1", "spark-2"}));
    EXPECT_EQ(slices_of(placement, 1, 0), (Slices{{0, 128, 0}}));
    EXPECT_EQ(slices_of(placement, 1, 1), (Slices{{0, 128, 1}}));
    EXPECT_EQ(slices_of(placement, 8, 30), (Slices{{0, 128, 0}}));
    EXPECT_EQ(slices_of(placement, 8, 31), (Slices{{0, 128, 1}}));
}

TEST(EvenFill, three_holders_get_ten_or_eleven_experts_of_every_layer) {
    const Placement placement = place(kTiny, holders(3, kNoLimit), PlacementMode::kWhole);
    for (int32_t layer = 1; layer <= 8; ++layer) {
        for (const auto& [holder, columns] : columns_in_layer(placement, layer)) {
            EXPECT_GE(columns, 10 * 128) << "layer " << layer << " holder " << holder;
            EXPECT_LE(columns, 11 * 128) << "layer " << layer << " holder " << holder;
        }
    }
}

TEST(EvenFill, slices_split_every_expert_over_all_holders) {
    const Placement placement = place(kTiny, holders(2, kNoLimit), PlacementMode::kSliced);
    for (int32_t expert = 0; expert < 32; ++expert) {
        EXPECT_EQ(slices_of(placement, 5, expert), (Slices{{0, 64, 0}, {64, 128, 1}}));
    }
}

TEST(EvenFill, eight_holders_of_four_slices_take_turns) {
    const Placement placement = place(kTiny, holders(8, kNoLimit), PlacementMode::kSliced);
    EXPECT_EQ(slices_of(placement, 1, 0),
              (Slices{{0, 32, 0}, {32, 64, 1}, {64, 96, 2}, {96, 128, 3}}));
    EXPECT_EQ(slices_of(placement, 1, 1),
              (Slices{{0, 32, 4}, {32, 64, 5}, {64, 96, 6}, {96, 128, 7}}));
    for (int32_t layer = 1; layer <= 8; ++layer) {
        const auto columns = columns_in_layer(placement, layer);
        ASSERT_EQ(columns.size(), 8u);
        for (const auto& [holder, count] : columns) EXPECT_EQ(count, 512) << holder;
    }
}

TEST(EvenFill, a_small_budget_is_filled_and_the_others_share_the_rest) {
    std::vector<HolderBudget> budgets = holders(3, kNoLimit);
    budgets[0].budget_bytes = 16 * 128 * 216 + 5;  // 16 of the 256 experts
    const Placement placement = place(kTiny, budgets, PlacementMode::kWhole);
    EXPECT_EQ(placement.shards_of(0).size(), 16u);
    EXPECT_EQ(placement.shards_of(1).size(), 120u);
    EXPECT_EQ(placement.shards_of(2).size(), 120u);
    for (int32_t layer = 1; layer <= 8; ++layer) {
        EXPECT_EQ(columns_in_layer(placement, layer)[0], 2 * 128) << "layer " << layer;
    }
}

TEST(EvenFill, a_holder_without_budget_holds_nothing) {
    const std::vector<HolderBudget> budgets = {{"station", 0}, {"spark-1", kNoLimit}};
    const Placement placement = place(kTiny, budgets, PlacementMode::kSliced);
    EXPECT_EQ(placement.holders, (std::vector<std::string>{"station", "spark-1"}));
    EXPECT_TRUE(placement.shards_of(0).empty());
    EXPECT_EQ(placement.shards_of(1).size(), 256u);
}

TEST(EvenFill, budgets_that_fit_to_the_byte_are_enough) {
    const Placement placement = place(kTiny, holders(2, 128 * 128 * 216), PlacementMode::kWhole);
    EXPECT_EQ(placement.shards_of(0).size(), 128u);
    EXPECT_EQ(placement.shards_of(1).size(), 128u);
}

TEST(EvenFill, one_expert_too_little_is_refused_with_the_figures_of_every_holder) {
    std::vector<HolderBudget> budgets = holders(2, 128 * 27648);
    budgets[1].budget_bytes -= 27648;
    const auto placement = place_evenly(kTiny, budgets, PlacementMode::kWhole, 1);
    EXPECT_EQ(
        placement.status().to_string(),
        "resource_exhausted: the routed experts need 7077888 bytes, the budgets hold 7050240: "
        "short by 27648 bytes; spark-1 needs 3538944, budget 3538944, short by 0; spark-2 needs "
        "3538944, budget 3511296, short by 27648; raise the budgets or add nodes");
}

TEST(EvenFill, the_nvfp4_release_does_not_fit_eight_sparks) {
    const PlacementShape k3{.first_layer = 1,
                            .num_layers = 92,
                            .num_experts = 896,
                            .width = 3072,
                            .bytes_per_column = 6048};
    const auto placement =
        place_evenly(k3, holders(8, int64_t{121} << 30), PlacementMode::kWhole, 1);
    EXPECT_EQ(
        placement.status().message().substr(0, 106),
        "the routed experts need 1531541716992 bytes, the budgets hold 1039260450816: short by "
        "492281266176 bytes; ");
}

TEST(EvenFill, wrong_arguments_are_refused_by_name) {
    const auto refusal = [](PlacementShape shape, std::vector<HolderBudget> budgets) {
        return place_evenly(shape, budgets, PlacementMode::kWhole, 1).status().message();
    };
    EXPECT_EQ(refusal(kTiny, {}), "no node can hold experts: name at least one");
    EXPECT_EQ(refusal(kTiny, {{"a", 1}, {"a", 1}}), "node a is there twice");
    EXPECT_EQ(refusal(kTiny, {{"", 1}}), "a node that holds experts has no name");
    EXPECT_EQ(refusal(kTiny, {{"a", -1}}), "node a: budget of -1 bytes, expected 0 or more");
    PlacementShape shape = kTiny;
    shape.width = 100;
    EXPECT_EQ(refusal(shape, {{"a", 1}}), "width: found 100, expected a multiple of 32");
    shape = kTiny;
    shape.num_experts = 0;
    EXPECT_EQ(refusal(shape, {{"a", 1}}), "num_experts: found 0, expected 1 to 65536");
    shape = kTiny;
    shape.bytes_per_column = 0;
    EXPECT_EQ(refusal(shape, {{"a", 1}}), "bytes_per_column: found 0, expected 1 to 1048576");
}

struct RandomCase {
    PlacementShape shape;
    std::vector<HolderBudget> budgets;
    PlacementMode mode;
};

RandomCase random_case(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto between = [&](int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    RandomCase c;
    c.shape = {.first_layer = static_cast<int32_t>(between(0, 3)),
               .num_layers = static_cast<int32_t>(between(1, 12)),
               .num_experts = static_cast<int32_t>(between(1, 100)),
               .width = static_cast<int32_t>(between(1, 24) * 32),
               .bytes_per_column = between(1, 7000)};
    c.mode = between(0, 1) == 0 ? PlacementMode::kWhole : PlacementMode::kSliced;
    const int64_t needed =
        c.shape.bytes_per_column * c.shape.width * c.shape.num_layers * c.shape.num_experts;
    const int64_t count = between(1, 12);
    for (int64_t i = 0; i < count; ++i) {
        c.budgets.push_back({"node-" + std::to_string(i), between(0, 3 * needed / count + 1)});
    }
    return c;
}

// How far each holder is from its share of a layer, in grains.
void expect_layers_are_even(const RandomCase& c, const Placement& placement) {
    const int32_t grain = c.mode == PlacementMode::kWhole ? c.shape.width : kSliceMultiple;
    std::map<int32_t, int64_t> total;
    for (int32_t i = 0; i < c.shape.num_layers; ++i) {
        for (const auto& [h, columns] : columns_in_layer(placement, c.shape.first_layer + i)) {
            total[h] += columns;
        }
    }
    for (int32_t i = 0; i < c.shape.num_layers; ++i) {
        auto layer = columns_in_layer(placement, c.shape.first_layer + i);
        for (const auto& [h, columns] : total) {
            const double share = static_cast<double>(columns) / c.shape.num_layers;
            EXPECT_NEAR(static_cast<double>(layer[h]) / grain, share / grain, 3.0);
        }
    }
}

TEST(EvenFill, random_cases_tile_every_expert_within_every_budget) {
    int num_feasible = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        const RandomCase c = random_case(seed);
        const auto placement = place_evenly(c.shape, c.budgets, c.mode, 7);
        if (!placement) {
            EXPECT_EQ(placement.status().code(), Code::kResourceExhausted);
            continue;
        }
        ++num_feasible;
        EXPECT_EQ(placement->epoch, 7u);
        const Status checked = check_placement(*placement, c.shape, c.budgets);
        EXPECT_TRUE(checked) << checked.to_string();
        expect_layers_are_even(c, *placement);
        EXPECT_EQ(*place_evenly(c.shape, c.budgets, c.mode, 7), *placement);
        if (HasFailure()) break;
    }
    EXPECT_GT(num_feasible, 100);
}

TEST(EvenFill, the_whole_model_over_ten_holders_takes_less_than_a_second) {
    const PlacementShape k3{.first_layer = 1,
                            .num_layers = 92,
                            .num_experts = 896,
                            .width = 3072,
                            .bytes_per_column = 5712};
    const auto start = std::chrono::steady_clock::now();
    const Placement placement = place(k3, holders(10, kNoLimit), PlacementMode::kSliced);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_EQ(placement.slices.size(), 82432u);
    fmt::print("82432 experts over ten holders: {:.3f} s\n", seconds);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(seconds, 1.0);
#endif
}

}  // namespace
}  // namespace k3pod

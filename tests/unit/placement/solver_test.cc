#include "k3pod/placement/solver.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <random>

namespace k3pod {
namespace {

using testing::HasSubstr;

constexpr double kGiB = 1 << 30;

// The time on one idle core is a tenth of a second a mode; the bounds leave room for a busy one.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kMaxSeconds = 5;
#else
constexpr double kMaxSeconds = 100;
#endif

constexpr PlacementShape kNvfp4{.first_layer = 1,
                                .num_layers = 92,
                                .num_experts = 896,
                                .width = 3072,
                                .bytes_per_column = 6048,
                                .bytes_per_shard = 24};
constexpr PlacementShape kMxfp4{.first_layer = 1,
                                .num_layers = 92,
                                .num_experts = 896,
                                .width = 3072,
                                .bytes_per_column = 5712};

int64_t gib(double value) {
    return std::llround(value * kGiB);
}

std::vector<HolderBudget> pod_budgets(double station_gib, double spark_gib) {
    std::vector<HolderBudget> budgets;
    if (station_gib > 0) budgets.push_back({"station", gib(station_gib)});
    for (int i = 1; i <= 8; ++i) budgets.push_back({fmt::format("spark-{}", i), gib(spark_gib)});
    return budgets;
}

int64_t spare(const PlacementShape& shape, double station_gib, double spark_gib) {
    return check_budgets(shape, pod_budgets(station_gib, spark_gib), PlacementMode::kWhole)
        .spare_experts();
}

TEST(Budgets, the_real_pod_has_282_spare_experts) {
    EXPECT_EQ(kNvfp4.expert_bytes(), 18'579'480);
    EXPECT_EQ(spare(kNvfp4, 595.42, 104.49), 282);
    EXPECT_NEAR(282 * static_cast<double>(kNvfp4.expert_bytes()) / kGiB, 4.88, 0.005);
}

TEST(Budgets, sparks_at_a_round_100_gib_leave_1790_experts_homeless) {
    EXPECT_EQ(spare(kNvfp4, 595.42, 100), -1790);
}

TEST(Budgets, thirty_gib_less_leave_the_station_short_by_1452) {
    const BudgetCheck check =
        check_budgets(kNvfp4, pod_budgets(565.42, 104.49), PlacementMode::kWhole);
    EXPECT_FALSE(check.fits);
    EXPECT_EQ(check.spare_experts(), -1452);
    EXPECT_EQ(check.holders[0].name, "station");
    EXPECT_EQ(check.holders[0].short_experts, 1452);
    EXPECT_EQ(check.holders[0].needed_experts, 34'128);  // 82,432 less 8 x 6,038
    EXPECT_EQ(check.holders[0].needed_bytes, 34'128 * kNvfp4.expert_bytes());
    EXPECT_EQ(check.holders[0].short_bytes, 34'128 * kNvfp4.expert_bytes() - gib(565.42));
}

TEST(Budgets, mxfp4_leaves_5146_spare_and_closes_the_round_100_gib) {
    EXPECT_EQ(kMxfp4.expert_bytes(), 17'547'264);
    EXPECT_EQ(spare(kMxfp4, 595.42, 104.49), 5146);
    EXPECT_NEAR(5146 * static_cast<double>(kMxfp4.expert_bytes()) / kGiB, 84.1, 0.1);
    EXPECT_EQ(spare(kMxfp4, 595.42, 100), 2954);
}

TEST(Budgets, eight_sparks_alone_are_too_small_with_figures) {
    const BudgetCheck check = check_budgets(kNvfp4, pod_budgets(0, 121), PlacementMode::kWhole);
    EXPECT_FALSE(check.fits);
    EXPECT_EQ(check.held_experts, 8 * 6992);
    for (const HolderNeed& need : check.holders) {
        EXPECT_EQ(need.short_experts, 26'496);
        EXPECT_EQ(need.needed_bytes - need.budget_bytes, need.short_bytes);
    }
}

TEST(Budgets, one_byte_too_few_for_one_expert_is_one_expert_short) {
    const PlacementShape shape{.first_layer = 1,
                               .num_layers = 8,
                               .num_experts = 32,
                               .width = 128,
                               .bytes_per_column = 216,
                               .bytes_per_shard = 24};
    std::vector<HolderBudget> budgets = {{"a", 128 * 27'672}, {"b", 128 * 27'672 - 1}};
    BudgetCheck check = check_budgets(shape, budgets, PlacementMode::kWhole);
    EXPECT_FALSE(check.fits);
    EXPECT_EQ(check.holders[1].short_bytes, 1);
    EXPECT_EQ(check.holders[1].short_experts, 1);
    budgets[1].budget_bytes += 1;
    check = check_budgets(shape, budgets, PlacementMode::kWhole);
    EXPECT_TRUE(check.fits);
    EXPECT_EQ(check.spare_experts(), 0);
}

// HBM, host memory and eight Sparks, as configs/k3-pod.toml has them.
PlacementProblem real_pod(const PlacementShape& shape) {
    PlacementProblem problem{
        .shape = shape,
        .holders = {{"station.hbm", gib(143.0), 7.1e12}, {"station.host", gib(452.42), 396e9}},
        .popularity = uniform_popularity(92, 896, 16),
        .batch_tokens = 1};
    for (int i = 1; i <= 8; ++i) {
        problem.holders.push_back({fmt::format("spark-{}", i), gib(104.49), 208e9});
    }
    return problem;
}

Plan solve(const PlacementProblem& problem, ModeRequest mode) {
    auto plan = solve_placement(problem, mode, 1);
    EXPECT_TRUE(plan) << plan.status().to_string();
    return plan ? std::move(*plan) : Plan{};
}

// Everything a plan promises, whatever the problem.
void expect_sound(const PlacementProblem& problem, const Plan& plan) {
    const Status status =
        check_placement(plan.placement, problem.shape, budgets_of(problem.holders));
    EXPECT_TRUE(status) << status.to_string();
    EXPECT_LE(plan.times.slowest_s, plan.even_fill_s);
    EXPECT_LE(plan.replicas_s, plan.times.slowest_s);
    EXPECT_GE(plan.times.slowest_s + 5 * plan.times.slowest_error_s, plan.bound_s * (1 - 1e-9));
}

TEST(Solver, the_full_model_is_placed_in_time_near_its_bound_and_always_alike) {
    const PlacementProblem problem = real_pod(kNvfp4);
    const auto start = std::chrono::steady_clock::now();
    const Plan plan = solve(problem, ModeRequest::kAuto);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print("both modes in {:.2f} s; {:.4f} ms a layer, bound {:.4f}\n", seconds,
               plan.times.slowest_s * 1e3, plan.bound_s * 1e3);
    EXPECT_LT(seconds, kMaxSeconds);
    EXPECT_EQ(plan.mode, PlacementMode::kSliced);
    expect_sound(problem, plan);
    EXPECT_LT(plan.gap(), 0.02);
    EXPECT_EQ(solve(problem, ModeRequest::kAuto).placement, plan.placement);
}

TEST(Solver, whole_experts_of_the_full_model_fit_as_well) {
    const PlacementProblem problem = real_pod(kNvfp4);
    const Plan plan = solve(problem, ModeRequest::kWhole);
    expect_sound(problem, plan);
    EXPECT_LE(plan.gap(), 0.35);
    for (const auto& slices : plan.placement.slices) ASSERT_EQ(slices.size(), 1u);
}

PlacementProblem equal_pod(int num_holders, int64_t budget_experts) {
    PlacementProblem problem{.shape = {.first_layer = 1,
                                       .num_layers = 92,
                                       .num_experts = 896,
                                       .width = 256,
                                       .bytes_per_column = 1000},
                             .holders = {},
                             .popularity = uniform_popularity(92, 896, 16),
                             .batch_tokens = 1};
    for (int i = 1; i <= num_holders; ++i) {
        problem.holders.push_back({fmt::format("spark-{}", i), budget_experts * 256'000, 1e9});
    }
    return problem;
}

TEST(Solver, eight_equal_nodes_of_whole_experts_have_the_known_imbalance) {
    const PlacementProblem problem = equal_pod(8, 92 * 112);
    const Plan plan = solve(problem, ModeRequest::kWhole);
    EXPECT_NEAR(plan.times.busiest_to_mean, 2.09, 0.03);
    EXPECT_NEAR(expected_times(plan.placement, problem, 4).busiest_to_mean, 1.55, 0.06);
    EXPECT_LT(expected_times(plan.placement, problem, 64).busiest_to_mean, 1.2);
}

TEST(Solver, slices_give_every_equal_node_the_mean) {
    const PlacementProblem problem = equal_pod(8, 92 * 112);
    const Plan plan = solve(problem, ModeRequest::kAuto);
    EXPECT_EQ(plan.mode, PlacementMode::kSliced);
    EXPECT_NEAR(plan.times.busiest_to_mean, 1.0, 1e-9);
    EXPECT_NEAR(plan.gap(), 0.0, 1e-9);
}

TEST(Solver, mixed_budgets_give_uneven_slices_of_multiples_of_32) {
    PlacementProblem problem = equal_pod(8, 92 * 124);
    problem.holders[7].budget_bytes = int64_t{92} * 124 * 256'000 * 6 / 10;
    const Plan plan = solve(problem, ModeRequest::kSliced);
    expect_sound(problem, plan);
    std::vector<int64_t> columns(8, 0);
    for (const auto& slices : plan.placement.slices) {
        for (const PlacedSlice& slice : slices) {
            EXPECT_EQ(slice.begin % 32, 0);
            columns[static_cast<size_t>(slice.holder)] += slice.end - slice.begin;
        }
    }
    const double ratio = static_cast<double>(columns[7]) / static_cast<double>(columns[0]);
    EXPECT_LT(ratio, 0.65);
    EXPECT_GT(ratio, 0.55);
}

// Expert e is picked in proportion to 1 / (1 + e).
Popularity skewed(int32_t num_layers, int32_t num_experts, int32_t top_k) {
    PickTrace trace{.first_layer = 0,
                    .num_layers = num_layers,
                    .num_experts = num_experts,
                    .tokens = 0,
                    .picks = {}};
    std::vector<int64_t> counts;
    int64_t sum = 0;
    for (int32_t e = 0; e < num_experts; ++e) {
        counts.push_back(10'000 / (1 + e));
        sum += counts.back();
    }
    counts.back() += (top_k - sum % top_k) % top_k;
    trace.tokens = std::max<int64_t>((sum + top_k - 1) / top_k, 10'000);
    counts.back() += trace.tokens * top_k - (sum + (top_k - sum % top_k) % top_k);
    for (int32_t l = 0; l < num_layers; ++l) {
        trace.picks.insert(trace.picks.end(), counts.begin(), counts.end());
    }
    const auto popularity = popularity_of({&trace, 1}, 0, num_layers, num_experts, top_k);
    EXPECT_TRUE(popularity) << popularity.status().to_string();
    return popularity ? *popularity : Popularity{};
}

TEST(Solver, hot_experts_go_to_the_fastest_tier) {
    const PlacementShape shape{
        .first_layer = 0, .num_layers = 4, .num_experts = 64, .width = 64, .bytes_per_column = 100};
    // The fast tier holds an eighth of the experts, but reads fifty times as fast.
    const PlacementProblem problem{
        .shape = shape,
        .holders = {{"slow", 4 * 56 * 6400, 1e9}, {"fast", 4 * 8 * 6400, 50e9}},
        .popularity = skewed(4, 64, 2),
        .batch_tokens = 1};
    const Plan plan = solve(problem, ModeRequest::kWhole);
    expect_sound(problem, plan);
    for (int32_t layer = 0; layer < 4; ++layer) {
        for (int32_t expert = 0; expert < 4; ++expert) {
            EXPECT_EQ(plan.placement.of(layer, expert).front().holder, 1) << expert;
        }
    }
    EXPECT_LT(plan.times.slowest_s, 0.8 * plan.even_fill_s);
}

TEST(Solver, spare_room_becomes_replicas_that_shorten_the_tail) {
    PlacementProblem problem = equal_pod(4, 300 * 92);
    const Plan plan = solve(problem, ModeRequest::kWhole);
    expect_sound(problem, plan);
    EXPECT_FALSE(plan.placement.replicas.empty());
    EXPECT_LT(plan.replicas_s, 0.95 * plan.times.slowest_s);
    EXPECT_EQ(expected_times(plan.placement, problem, 1, ReplicaUse::kChosen).slowest_s,
              plan.replicas_s);
}

TEST(Solver, an_infeasible_pod_is_refused_with_bytes_of_every_holder) {
    PlacementProblem problem = equal_pod(2, 92 * 448);
    problem.holders[1].budget_bytes -= 1;
    const auto plan = solve_placement(problem, ModeRequest::kWhole, 1);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(plan.status().message(), HasSubstr("1 are homeless"));
    EXPECT_THAT(plan.status().message(),
                HasSubstr("spark-2 needs 10551296000 bytes if the others are full, budget "
                          "10551295999, short by 1"));
}

TEST(Solver, auto_slices_where_whole_experts_leave_gaps) {
    const PlacementShape shape{
        .first_layer = 0, .num_layers = 1, .num_experts = 4, .width = 128, .bytes_per_column = 1};
    const PlacementProblem problem{.shape = shape,
                                   .holders = {{"a", 192, 1e9}, {"b", 192, 1e9}, {"c", 128, 1e9}},
                                   .popularity = uniform_popularity(1, 4, 1),
                                   .batch_tokens = 1};
    EXPECT_FALSE(solve_placement(problem, ModeRequest::kWhole, 1));
    const Plan plan = solve(problem, ModeRequest::kAuto);
    EXPECT_EQ(plan.mode, PlacementMode::kSliced);
    expect_sound(problem, plan);
}

TEST(Solver, wrong_arguments_are_named) {
    PlacementProblem problem = equal_pod(2, 92 * 448);
    problem.holders[1].bytes_per_s = 0;
    EXPECT_THAT(solve_placement(problem, ModeRequest::kAuto, 1).status().message(),
                HasSubstr("node spark-2: bandwidth of 0 bytes/s, expected above 0"));
    problem = equal_pod(2, 92 * 448);
    problem.popularity = uniform_popularity(92, 895, 16);
    EXPECT_THAT(solve_placement(problem, ModeRequest::kAuto, 1).status().message(),
                HasSubstr("popularity of 92 x 895 experts, the model has 92 x 896"));
    problem = equal_pod(2, 92 * 448);
    problem.batch_tokens = 0;
    EXPECT_THAT(solve_placement(problem, ModeRequest::kAuto, 1).status().message(),
                HasSubstr("batch_tokens: found 0, expected 1 or more"));
}

TEST(Solver, more_holders_than_can_be_planned_for_are_refused) {
    EXPECT_THAT(solve_placement(equal_pod(257, 1000), ModeRequest::kAuto, 1).status().message(),
                HasSubstr("257 nodes hold experts, at most 256 can be planned for"));
}

class RandomPod {
  public:
    explicit RandomPod(uint32_t seed) : random_(seed) {}

    PlacementProblem next() {
        const PlacementShape shape{.first_layer = below(3),
                                   .num_layers = 1 + below(4),
                                   .num_experts = 4 + below(60),
                                   .width = 32 * (1 + below(8)),
                                   .bytes_per_column = 1 + below(1000),
                                   .bytes_per_shard = below(2) * 24};
        const int32_t top_k = 1 + below(4);
        PlacementProblem problem{
            .shape = shape,
            .holders = {},
            .popularity = below(2) == 0
                              ? uniform_popularity(shape.num_layers, shape.num_experts, top_k)
                              : skewed(shape.num_layers, shape.num_experts, top_k),
            .batch_tokens = 1 + below(3) * below(20)};
        const int64_t all = int64_t{shape.num_layers} * shape.num_experts * shape.expert_bytes();
        const int32_t num_holders = 1 + below(6);
        for (int32_t i = 0; i < num_holders; ++i) {
            // From a little too little, all together, to much too much.
            const double share = (0.2 + below(30) / 10.0) / num_holders;
            const char* tier = i == 0 && below(2) == 0 ? "station.hbm" : "node";
            problem.holders.push_back({fmt::format("{}-{}", tier, i),
                                       static_cast<int64_t>(share * static_cast<double>(all)),
                                       1e6 * (1 + below(50))});
        }
        return problem;
    }

  private:
    int32_t below(int32_t n) { return std::uniform_int_distribution<int32_t>(0, n - 1)(random_); }
    std::mt19937 random_;
};

TEST(Solver, random_pods_get_sound_plans_or_figures) {
    const uint32_t seed = std::random_device{}();
    RandomPod pods(seed);
    int num_solved = 0;
    for (int i = 0; i < 150; ++i) {
        SCOPED_TRACE(fmt::format("seed {}, pod {}", seed, i));
        const PlacementProblem problem = pods.next();
        const ModeRequest mode = i % 3 == 0   ? ModeRequest::kAuto
                                 : i % 3 == 1 ? ModeRequest::kWhole
                                              : ModeRequest::kSliced;
        const auto plan = solve_placement(problem, mode, 7);
        if (!plan) {
            EXPECT_EQ(plan.status().code(), Code::kResourceExhausted) << plan.status().to_string();
            continue;
        }
        ++num_solved;
        expect_sound(problem, *plan);
        EXPECT_EQ(plan->placement.epoch, 7u);
        const auto again = solve_placement(problem, mode, 7);
        ASSERT_TRUE(again);
        EXPECT_EQ(again->placement, plan->placement);
        if (HasFailure()) break;
    }
    EXPECT_GT(num_solved, 30);
}

}  // namespace
}  // namespace k3pod

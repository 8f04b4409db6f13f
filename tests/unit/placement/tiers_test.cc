#include <gtest/gtest.h>

#include "k3pod/placement/placement.h"

namespace k3pod {
namespace {

Placement with_tiers() {
    return {.epoch = 3,
            .first_layer = 1,
            .num_layers = 1,
            .num_experts = 3,
            .width = 128,
            .holders = {"spark-1", "station.hbm", "spark-2", "station.host"},
            .slices = {{{0, 32, 0}, {32, 64, 1}, {64, 128, 3}},
                       {{0, 128, 2}},
                       {{0, 32, 1}, {32, 64, 2}, {64, 128, 3}}},
            .replicas = {{1, 1, {{0, 128, 1}}}}};
}

TEST(Tiers, the_runtime_sees_one_station_and_no_replicas) {
    const Placement expected{
        .epoch = 3,
        .first_layer = 1,
        .num_layers = 1,
        .num_experts = 3,
        .width = 128,
        .holders = {"spark-1", "station", "spark-2"},
        .slices = {
            {{0, 32, 0}, {32, 128, 1}}, {{0, 128, 2}}, {{0, 32, 1}, {32, 64, 2}, {64, 128, 1}}}};
    EXPECT_EQ(runtime_placement(with_tiers()), expected);
    EXPECT_EQ(runtime_placement(expected), expected);
}

TEST(Tiers, names_of_the_station_and_its_tiers_are_known) {
    EXPECT_TRUE(is_station_tier("station"));
    EXPECT_TRUE(is_station_tier("station.hbm"));
    EXPECT_FALSE(is_station_tier("station-2"));
    EXPECT_FALSE(is_station_tier("spark-1"));
}

TEST(Replicas, survive_the_round_trip_through_json) {
    const auto again = parse_placement(to_json(with_tiers()));
    ASSERT_TRUE(again) << again.status().to_string();
    EXPECT_EQ(*again, with_tiers());
}

TEST(Replicas, are_not_among_the_shards_of_a_holder) {
    EXPECT_EQ(with_tiers().shards_of(1), (std::vector<Shard>{{1, 0, 32, 64}, {1, 2, 0, 32}}));
}

TEST(Replicas, count_in_bytes_and_against_budgets) {
    const PlacementShape shape{.first_layer = 1,
                               .num_layers = 1,
                               .num_experts = 3,
                               .width = 128,
                               .bytes_per_column = 10,
                               .bytes_per_shard = 4};
    EXPECT_EQ(held_bytes(with_tiers(), shape),
              (std::vector<int64_t>{324, 324 + 324 + 1284, 1284 + 324, 644 + 644}));
    std::vector<HolderBudget> budgets = {
        {"spark-1", 324}, {"station.hbm", 1932}, {"spark-2", 1608}, {"station.host", 1288}};
    EXPECT_EQ(check_placement(with_tiers(), shape, budgets).to_string(), "ok");
    budgets[1].budget_bytes = 1931;
    EXPECT_EQ(check_placement(with_tiers(), shape, budgets).to_string(),
              "resource_exhausted: station.hbm is to hold 1932 bytes of experts, its budget is "
              "1931: short by 1 bytes");
}

std::string refusal(const Replica& replica) {
    Placement placement = with_tiers();
    placement.replicas = {replica};
    return parse_placement(to_json(placement)).status().message();
}

TEST(Replicas, that_do_not_tile_or_belong_to_no_expert_are_refused) {
    EXPECT_EQ(refusal({2, 1, {{0, 128, 1}}}), "replica of layer 2, expert 1: layers are 1 to 1");
    EXPECT_EQ(refusal({1, 3, {{0, 128, 1}}}), "replica of layer 1, expert 3: experts are 0 to 2");
    EXPECT_EQ(refusal({1, 1, {{0, 96, 1}}}),
              "replica of layer 1, expert 1: columns [96, 128) have no holder");
    EXPECT_EQ(refusal({1, 1, {{0, 128, 4}}}),
              "replica of layer 1, expert 1: slice [0, 128): holder 4, expected 0 to 3");
}

}  // namespace
}  // namespace k3pod

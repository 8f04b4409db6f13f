#include <gtest/gtest.h>

#include "k3pod/placement/placement.h"

namespace k3pod {
namespace {

constexpr PlacementShape kShape{
    .first_layer = 1, .num_layers = 2, .num_experts = 2, .width = 128, .bytes_per_column = 10};
const std::vector<HolderBudget> kBudgets = {{"station", 2560}, {"spark-1", 2560}};

Placement good() {
    return {.epoch = 1,
            .first_layer = 1,
            .num_layers = 2,
            .num_experts = 2,
            .width = 128,
            .holders = {"station", "spark-1"},
            .slices = {{{0, 128, 0}}, {{0, 128, 1}}, {{0, 96, 0}, {96, 128, 1}}, {{0, 128, 1}}}};
}

std::string refusal_of(const Placement& placement) {
    return check_placement(placement, kShape, kBudgets).to_string();
}

TEST(CheckPlacement, accepts_uneven_slices_within_budget) {
    const std::vector<HolderBudget> budgets = {{"spark-1", 2880}, {"station", 2240}};
    EXPECT_EQ(check_placement(good(), kShape, budgets).to_string(), "ok");
}

TEST(CheckPlacement, refuses_a_gap_between_slices) {
    Placement placement = good();
    placement.slices[2] = {{0, 64, 0}, {96, 128, 1}};
    EXPECT_EQ(
        refusal_of(placement),
        "invalid_argument: layer 2, expert 0: slice [96, 128) leaves a gap at column 64, every "
        "column needs one holder");
}

TEST(CheckPlacement, refuses_a_column_held_twice) {
    Placement placement = good();
    placement.slices[2] = {{0, 96, 0}, {64, 128, 1}};
    EXPECT_EQ(refusal_of(placement),
              "invalid_argument: layer 2, expert 0: slice [64, 128) holds a second time column 64, "
              "every column needs one holder");
}

TEST(CheckPlacement, refuses_an_expert_that_is_not_whole) {
    Placement placement = good();
    placement.slices[3] = {{0, 96, 1}};
    EXPECT_EQ(refusal_of(placement),
              "invalid_argument: layer 2, expert 1: columns [96, 128) have no holder");
    placement.slices[3] = {};
    EXPECT_EQ(refusal_of(placement),
              "invalid_argument: layer 2, expert 1: columns [0, 128) have no holder");
}

TEST(CheckPlacement, refuses_borders_inside_a_scale_block_or_outside_the_width) {
    Placement placement = good();
    placement.slices[0] = {{0, 48, 0}, {48, 128, 1}};
    EXPECT_EQ(
        refusal_of(placement),
        "invalid_argument: layer 1, expert 0: slice [0, 48): expected an end above 0, up to 128 "
        "and a multiple of 32");
    placement.slices[0] = {{0, 160, 0}};
    EXPECT_EQ(
        refusal_of(placement),
        "invalid_argument: layer 1, expert 0: slice [0, 160): expected an end above 0, up to 128 "
        "and a multiple of 32");
}

TEST(CheckPlacement, refuses_holders_that_are_not_in_the_list) {
    Placement placement = good();
    placement.slices[1] = {{0, 128, 2}};
    EXPECT_EQ(refusal_of(placement),
              "invalid_argument: layer 1, expert 1: slice [0, 128): holder 2, expected 0 to 1");
    placement.slices[1] = {{0, 128, -1}};
    EXPECT_EQ(refusal_of(placement),
              "invalid_argument: layer 1, expert 1: slice [0, 128): holder -1, expected 0 to 1");
}

TEST(CheckPlacement, refuses_a_holder_that_is_no_node_of_the_pod) {
    Placement placement = good();
    placement.holders[1] = "spark-9";
    EXPECT_EQ(
        refusal_of(placement),
        "invalid_argument: holder \"spark-9\" is no node of this pod; it has: station spark-1");
}

TEST(CheckPlacement, names_the_section_that_gives_the_station_a_budget) {
    Placement placement = good();
    for (const std::string tier : {"station", "station.hbm"}) {
        placement.holders = {tier, "spark-1"};
        const HolderBudget only[] = {{"spark-1", 1 << 30}};
        EXPECT_EQ(check_placement(placement, kShape, only).to_string(),
                  "invalid_argument: holder \"" + tier +
                      "\" has no budget; set expert_budget in [" + tier + "] of the pod file");
    }
}

TEST(CheckPlacement, refuses_holders_without_or_with_the_same_name) {
    Placement placement = good();
    placement.holders[1] = "station";
    EXPECT_EQ(refusal_of(placement), "invalid_argument: holders: \"station\" is there twice");
    placement.holders[1] = "";
    EXPECT_EQ(refusal_of(placement), "invalid_argument: holders: a name is empty");
    placement.holders[1] = "spark\x1b[2J";
    EXPECT_EQ(refusal_of(placement),
              "invalid_argument: holders: \"spark\\x1b[2J\" has control characters");
}

TEST(CheckPlacement, refuses_a_budget_overrun_with_the_figures) {
    EXPECT_EQ(
        refusal_of(good()),
        "resource_exhausted: spark-1 is to hold 2880 bytes of experts, its budget is 2560: short "
        "by 320 bytes");
}

TEST(CheckPlacement, refuses_a_placement_of_another_model) {
    Placement placement = good();
    placement.num_experts = 4;
    EXPECT_EQ(refusal_of(placement),
              "invalid_argument: num_experts: found 4, the model has 2: the placement was made for "
              "another model");
    placement = good();
    placement.slices.pop_back();
    EXPECT_EQ(refusal_of(placement), "invalid_argument: slices of 3 experts, expected 4");
}

TEST(Placement, lists_the_shards_of_a_holder_in_order) {
    EXPECT_EQ(good().shards_of(1),
              (std::vector<Shard>{{1, 1, 0, 128}, {2, 0, 96, 128}, {2, 1, 0, 128}}));
    EXPECT_EQ(good().shards_of(0), (std::vector<Shard>{{1, 0, 0, 128}, {2, 0, 0, 96}}));
    EXPECT_TRUE(good().shards_of(2).empty());
}

}  // namespace
}  // namespace k3pod

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <random>

#include "k3pod/placement/placement.h"

namespace k3pod {
namespace {

using testing::HasSubstr;

constexpr char kText[] = R"({
"format": "k3pod-placement-1",
"epoch": 4000000000,
"first_layer": 1,
"num_layers": 1,
"num_experts": 2,
"width": 128,
"holders": ["station", "spark-1"],
"layers": [
[[[0,128,1]],[[0,32,0],[32,128,1]]]
]
}
)";

Placement sample() {
    return {.epoch = 4'000'000'000u,
            .first_layer = 1,
            .num_layers = 1,
            .num_experts = 2,
            .width = 128,
            .holders = {"station", "spark-1"},
            .slices = {{{0, 128, 1}}, {{0, 32, 0}, {32, 128, 1}}}};
}

// The refusal of kText with the first `from` replaced.
std::string refusal_of(const std::string& from, const std::string& to) {
    std::string text = kText;
    const size_t at = text.find(from);
    if (at == std::string::npos) return "the text does not hold " + from;
    text.replace(at, from.size(), to);
    const auto placement = parse_placement(text);
    return placement ? "accepted" : placement.status().to_string();
}

TEST(PlacementJson, writes_one_line_per_layer) {
    EXPECT_EQ(to_json(sample()), kText);
}

TEST(PlacementJson, reads_what_it_writes) {
    const auto placement = parse_placement(kText);
    ASSERT_TRUE(placement) << placement.status().to_string();
    EXPECT_EQ(*placement, sample());
}

TEST(PlacementJson, keeps_names_with_quotes_and_other_alphabets) {
    Placement placement = sample();
    placement.holders = {"a \"quoted\" \\ name", "узел-1"};
    const auto read = parse_placement(to_json(placement));
    ASSERT_TRUE(read) << read.status().to_string();
    EXPECT_EQ(read->holders, placement.holders);
}

TEST(PlacementJson, even_fills_survive_the_round_trip) {
    const PlacementShape shape{
        .first_layer = 1, .num_layers = 5, .num_experts = 7, .width = 160, .bytes_per_column = 3};
    const std::vector<HolderBudget> budgets = {{"station", 700}, {"a", 1 << 20}, {"b", 1 << 20}};
    for (const auto mode : {PlacementMode::kWhole, PlacementMode::kSliced}) {
        const auto placement = place_evenly(shape, budgets, mode, 3);
        ASSERT_TRUE(placement) << placement.status().to_string();
        EXPECT_EQ(*parse_placement(to_json(*placement)), *placement);
    }
}

TEST(PlacementJson, refuses_fields_that_are_unknown_missing_or_repeated) {
    EXPECT_EQ(
        refusal_of("\"epoch\"", "\"epok\""),
        "invalid_argument: unknown field \"epok\", expected one of format, epoch, first_layer, "
        "num_layers, num_experts, width, holders, layers, replicas");
    EXPECT_EQ(refusal_of("\"width\": 128,\n", ""), "invalid_argument: field width is missing");
    EXPECT_EQ(refusal_of("\"width\": 128,", "\"width\": 128, \"width\": 128,"),
              "invalid_argument: field width is there twice");
}

TEST(PlacementJson, refuses_wrong_values_by_field) {
    EXPECT_EQ(
        refusal_of("placement-1", "placement-2"),
        "invalid_argument: format: found \"k3pod-placement-2\", expected \"k3pod-placement-1\"");
    EXPECT_EQ(refusal_of("4000000000", "-1"),
              "invalid_argument: epoch: found -1, expected an integer from 0 to 4294967295");
    EXPECT_EQ(refusal_of("4000000000", "1.5"),
              "invalid_argument: epoch: found 1.5, expected an integer from 0 to 4294967295");
    EXPECT_EQ(refusal_of("\"width\": 128", "\"width\": \"128\""),
              "invalid_argument: width: found \"128\", expected an integer from 0 to 2147483647");
    EXPECT_EQ(refusal_of("\"num_layers\": 1", "\"num_layers\": 2000000000"),
              "invalid_argument: num_layers: found 2000000000, expected 1 to 1024");
    EXPECT_EQ(refusal_of("\"spark-1\"", "1"),
              "invalid_argument: holders[1]: found 1, expected the name of a node");
    EXPECT_EQ(refusal_of("\"spark-1\"", "\"station\""),
              "invalid_argument: holders: \"station\" is there twice");
    EXPECT_EQ(refusal_of("[\"station\", \"spark-1\"]", "{}"),
              "invalid_argument: holders: found {}, expected a list of node names");
}

TEST(PlacementJson, refuses_wrong_slices_by_layer_and_expert) {
    EXPECT_EQ(refusal_of("[[0,128,1]],", ""),
              "invalid_argument: layers[0] (layer 1): found [[[0,32,0],[32,128,1]]], expected a "
              "list of 2 "
              "experts");
    EXPECT_EQ(
        refusal_of("\"num_layers\": 1", "\"num_layers\": 2"),
        "invalid_argument: layers: found [[[[0,128,1]],[[0,32,0],[32,128,1]]]], expected a list "
        "of 2 layers");
    EXPECT_EQ(
        refusal_of("[0,32,0]", "[0,32]"),
        "invalid_argument: layers[0][1] (layer 1, expert 1): found [0,32], expected [begin, end, "
        "holder]");
    EXPECT_EQ(refusal_of("[0,32,0]", "[0,32,\"a\"]"),
              "invalid_argument: layers[0][1] (layer 1, expert 1): found \"a\", expected an "
              "integer from 0 to "
              "2147483647");
    EXPECT_EQ(refusal_of("[0,32,0]", "[0,64,0]"),
              "invalid_argument: layer 1, expert 1: slice [32, 128) holds a second time column 32, "
              "every column needs one holder");
}

TEST(PlacementJson, every_cut_of_the_text_is_refused) {
    const std::string text = kText;
    for (size_t size = 0; size + 2 < text.size(); ++size) {
        EXPECT_FALSE(parse_placement(text.substr(0, size))) << "cut at " << size;
    }
}

TEST(PlacementJson, damaged_text_never_gives_a_placement_that_does_not_tile) {
    for (uint64_t seed = 1; seed <= 3000; ++seed) {
        std::mt19937_64 random(seed);
        std::string text = kText;
        for (int i = 0; i < 3; ++i)
            text[random() % text.size()] = "0123456789[]{},:\"- a"[random() % 20];
        const auto placement = parse_placement(text);
        if (!placement) {
            EXPECT_FALSE(placement.status().message().empty());
            continue;
        }
        EXPECT_EQ(*parse_placement(to_json(*placement)), *placement) << "seed " << seed;
    }
}

TEST(PlacementJson, names_the_file_in_every_refusal) {
    EXPECT_EQ(read_placement("/nonexistent/placement.json").status().to_string(),
              "not_found: cannot read /nonexistent/placement.json: No such file or directory");
    const std::string path = testing::TempDir() + "/placement_with_path.json";
    std::ofstream(path) << "{}";
    EXPECT_EQ(read_placement(path).status().message(), path + ": field format is missing");
    std::ofstream(path) << "{\"format\":\n  \"k3pod\" \"epoch\": 1}";
    EXPECT_THAT(read_placement(path).status().message(),
                HasSubstr(path + ": not valid JSON at line 2, column 17: "));
}

TEST(PlacementJson, file_may_begin_with_a_byte_order_mark) {
    const std::string path = testing::TempDir() + "/placement_with_mark.json";
    std::ofstream(path, std::ios::binary) << "\xef\xbb\xbf" << kText;
    EXPECT_EQ(read_placement(path).value(), parse_placement(kText).value());
}

TEST(PlacementJson, refuses_a_pipe_in_place_of_the_file_without_waiting) {
    const std::string path = testing::TempDir() + "/placement_pipe.json";
    std::remove(path.c_str());
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(read_placement(path).status().message(),
              path + " is a pipe, expected a regular file");
}

}  // namespace
}  // namespace k3pod

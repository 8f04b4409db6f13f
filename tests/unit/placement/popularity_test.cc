#include "k3pod/placement/popularity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace k3pod {
namespace {

using testing::HasSubstr;

PickTrace small_trace() {
    return {.first_layer = 1,
            .num_layers = 2,
            .num_experts = 3,
            .tokens = 4,
            .picks = {4, 3, 1, 0, 4, 4}};
}

constexpr const char* kText = R"({
"format": "k3pod-trace-1",
"first_layer": 1,
"num_layers": 2,
"num_experts": 3,
"tokens": 4,
"picks": [
[4,3,1],
[0,4,4]
]
}
)";

std::string refusal(std::string text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    const auto trace = parse_trace(text);
    EXPECT_FALSE(trace) << text;
    return trace.status().message();
}

TEST(PickTrace, is_written_as_documented_and_read_back) {
    EXPECT_EQ(to_json(small_trace()), kText);
    const auto trace = parse_trace(kText);
    ASSERT_TRUE(trace) << trace.status().to_string();
    EXPECT_EQ(*trace, small_trace());
}

TEST(PickTrace, wrong_fields_are_named) {
    EXPECT_THAT(refusal(kText, "trace-1", "trace-9"), HasSubstr("format: found"));
    EXPECT_THAT(refusal(kText, "\"tokens\": 4,", ""), HasSubstr("field tokens is missing"));
    EXPECT_THAT(refusal(kText, "\"tokens\": 4", "\"tokens\": 0"),
                HasSubstr("tokens: found 0, expected 1 to"));
    EXPECT_THAT(refusal(kText, "\"tokens\"", "\"token\""), HasSubstr("unknown field \"token\""));
    EXPECT_THAT(refusal(kText, "[4,3,1]", "[4,3]"),
                HasSubstr("picks[0] (layer 1): found [4,3], expected a list of 3 counts"));
    EXPECT_THAT(refusal(kText, "[4,3,1]", "[5,2,1]"),
                HasSubstr("picks[0] (layer 1): found 5, expected at most tokens, 4"));
    EXPECT_THAT(refusal(kText, "[4,3,1]", "[4,-3,1]"), HasSubstr("found -3"));
    EXPECT_THAT(refusal(kText, ",\n[0,4,4]", ""), HasSubstr("expected a list of 2 layers"));
    EXPECT_THAT(refusal(kText, "{", ""), HasSubstr("not valid JSON"));
}

TEST(PickTrace, a_file_that_cannot_be_read_is_named) {
    EXPECT_THAT(read_trace("/nowhere/trace.json").status().message(),
                HasSubstr("/nowhere/trace.json"));
}

TEST(Popularity, counts_become_chances_that_sum_to_top_k) {
    const PickTrace trace = small_trace();
    const auto popularity = popularity_of({&trace, 1}, 1, 2, 3, 2);
    ASSERT_TRUE(popularity) << popularity.status().to_string();
    EXPECT_FALSE(popularity->is_uniform);
    // (count + 0.5) of 8 + 1.5 picks, two a token.
    EXPECT_DOUBLE_EQ(popularity->of_layer(0)[0], 4.5 * 2 / 9.5);
    EXPECT_DOUBLE_EQ(popularity->of_layer(0)[2], 1.5 * 2 / 9.5);
    EXPECT_DOUBLE_EQ(popularity->of_layer(1)[0], 0.5 * 2 / 9.5);
}

TEST(Popularity, without_a_trace_all_experts_are_alike) {
    const auto popularity = popularity_of({}, 1, 2, 4, 1);
    ASSERT_TRUE(popularity);
    EXPECT_TRUE(popularity->is_uniform);
    EXPECT_DOUBLE_EQ(popularity->of_layer(1)[3], 0.25);
}

TEST(Popularity, traces_add_up) {
    PickTrace even = small_trace();
    even.picks = {4, 4, 0, 4, 4, 0};
    PickTrace odd = small_trace();
    odd.picks = {0, 4, 4, 0, 4, 4};
    const PickTrace both[] = {even, odd};
    const auto popularity = popularity_of(both, 1, 2, 3, 2);
    ASSERT_TRUE(popularity) << popularity.status().to_string();
    EXPECT_DOUBLE_EQ(popularity->of_layer(0)[0], popularity->of_layer(0)[2]);
    EXPECT_DOUBLE_EQ(popularity->of_layer(0)[1], 8.5 * 2 / 17.5);
}

TEST(Popularity, a_trace_of_another_model_is_refused_with_both_numbers) {
    const PickTrace trace = small_trace();
    EXPECT_THAT(popularity_of({&trace, 1}, 1, 2, 4, 2).status().message(),
                HasSubstr("num_experts: found 3, the model has 4"));
    EXPECT_THAT(popularity_of({&trace, 1}, 1, 2, 3, 1).status().message(),
                HasSubstr("layer 1: 8 picks of 4 tokens, expected 4"));
}

}  // namespace
}  // namespace k3pod

#include "k3pod/config/predict_constants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace k3pod {
namespace {

using testing::HasSubstr;

std::string shipped_text() {
    std::ifstream in(K3POD_SOURCE_DIR "/configs/constants-k3-pod.toml");
    return {std::istreambuf_iterator<char>(in), {}};
}

// The shipped file with one constant written differently.
std::string with(const std::string& key, const std::string& line) {
    const std::string text = shipped_text();
    const size_t begin = text.find("\n" + key + " = ") + 1;
    EXPECT_NE(begin, 0u) << key;
    return text.substr(0, begin) + line + text.substr(text.find('\n', begin));
}

std::string refusal(const std::string& text) {
    const auto constants = parse_predict_constants(text, "bench.toml");
    EXPECT_FALSE(constants.is_ok()) << text;
    if (constants.is_ok()) return "";
    EXPECT_EQ(constants.status().code(), Code::kInvalidArgument);
    return constants.status().message();
}

TEST(PredictConstants, the_shipped_file_is_what_is_built_in) {
    const auto shipped = read_predict_constants(K3POD_SOURCE_DIR "/configs/constants-k3-pod.toml");
    ASSERT_TRUE(shipped) << shipped.status().message();
    EXPECT_EQ(*shipped, default_predict_constants());
    EXPECT_DOUBLE_EQ(shipped->kda_attention.value, 76.1e-6);
    EXPECT_DOUBLE_EQ(shipped->mla_cached_token.value, 0.235e-9);
    EXPECT_DOUBLE_EQ(shipped->server_bandwidth.value, 208e9);
    EXPECT_DOUBLE_EQ(shipped->compute.value, 1.8e15);
    EXPECT_DOUBLE_EQ(shipped->server_link.value, 111.7e9);
    EXPECT_DOUBLE_EQ(shipped->pick_reuse.value, 0.55);
    EXPECT_THAT(shipped->server_bandwidth.source, HasSubstr("GB10"));
}

TEST(PredictConstants, printed_constants_read_back_the_same) {
    PredictConstants constants = default_predict_constants();
    constants.round_trip = {1.0 / 3.0, "a \"quoted\" \\ source\n\x01\x7f of two lines"};
    constants.pick_reuse = {2.0 / 7.0, "odd"};
    constants.server_link = {1e18 / 7.0, "odd"};
    constants.compute = {1, "tiny"};
    constants.mla_cached_token = {1.3e-12, "tiny"};
    constants.kda_row = {0, "none"};
    const auto again = parse_predict_constants(to_toml(constants), "printed");
    ASSERT_TRUE(again) << again.status().message();
    EXPECT_EQ(*again, constants);
}

TEST(PredictConstants, a_missing_constant_is_named) {
    EXPECT_EQ(refusal(with("round_trip", "")),
              "bench.toml: [exchange] lacks 'round_trip'; every constant is needed, "
              "configs/constants-k3-pod.toml has them all");
    EXPECT_THAT(refusal(""), HasSubstr("[station] lacks 'kda_attention'"));
}

TEST(PredictConstants, an_unknown_constant_is_refused_with_the_nearest) {
    EXPECT_THAT(
        refusal(with("round_trip", "roundtrip = { value = \"1 us\", source = \"x\" }")),
        HasSubstr("unknown constant 'roundtrip' in [exchange]; did you mean 'round_trip'?"));
    EXPECT_THAT(refusal(shipped_text() + "\n[stations]\n"),
                HasSubstr("unknown section 'stations'"));
}

TEST(PredictConstants, limits_are_shown_as_they_were_written) {
    EXPECT_THAT(refusal(with("pick_reuse", "pick_reuse = { value = \"7\", source = \"x\" }")),
                HasSubstr("'7' is not a number from 0.000001 to 100 %, or 0,"));
}

TEST(PredictConstants, a_figure_without_unit_or_source_is_refused) {
    EXPECT_THAT(
        refusal(with("round_trip", "round_trip = { value = \"23\", source = \"x\" }")),
        HasSubstr("[exchange] round_trip: '23' is not a number from 0.001 ns to 60 s, or 0, with "
                  "one of s, ms, us, ns"));
    EXPECT_THAT(refusal(with("round_trip", "round_trip = { value = \"23 us\" }")),
                HasSubstr("[exchange] round_trip is written as { value = \"...\", source ="));
    EXPECT_THAT(refusal(with("round_trip", "round_trip = { value = \"23 us\", source = \"\" }")),
                HasSubstr("source = \"where it comes from\""));
    EXPECT_THAT(refusal(with("round_trip", "round_trip = \"23 us\"")), HasSubstr("is written as"));
    EXPECT_THAT(refusal(with("round_trip", "round_trip = 23")), HasSubstr("is written as"));
}

TEST(PredictConstants, figures_that_no_machine_has_are_refused) {
    for (const char* value : {"-1 GB/s", "0 GB/s", "1e999 GB/s", "nan GB/s", "99999999999 TB/s",
                              "208 GiB", "208 Gb/s", ""}) {
        const std::string line =
            std::string("bandwidth = { value = \"") + value + "\", source = \"x\" }";
        EXPECT_THAT(refusal(with("bandwidth", line)), HasSubstr("[server] bandwidth")) << value;
    }
    EXPECT_THAT(refusal(with("pick_reuse", "pick_reuse = { value = \"101 %\", source = \"x\" }")),
                HasSubstr("to 100 %"));
}

TEST(PredictConstants, text_that_is_not_toml_is_refused_with_line_and_column) {
    EXPECT_THAT(refusal("[station\n"), HasSubstr("bench.toml:1: column"));
}

TEST(PredictConstants, a_missing_file_is_refused_with_its_name) {
    const auto constants = read_predict_constants("/nowhere/constants.toml");
    ASSERT_FALSE(constants.is_ok());
    EXPECT_EQ(constants.status().code(), Code::kNotFound);
    EXPECT_THAT(constants.status().message(), HasSubstr("/nowhere/constants.toml"));
}

}  // namespace
}  // namespace k3pod

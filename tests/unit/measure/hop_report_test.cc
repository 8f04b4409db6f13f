#include "hop_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace k3pod {
namespace {

using ::testing::HasSubstr;

ExchangeParts parts(double hand_off, double wire, double server, double expert) {
    return {hand_off + wire + server + expert, hand_off, wire, server, expert};
}

TEST(HopReport, takes_the_parts_of_the_middle_fifth_and_the_percentiles_of_all) {
    std::vector<ExchangeParts> exchanges(9, parts(10, 20, 30, 40));
    exchanges.push_back(parts(10, 900, 30, 60));
    const HopCase one = summarise(exchanges);
    EXPECT_DOUBLE_EQ(one.total_us.p50, 100);
    EXPECT_DOUBLE_EQ(one.total_us.max, 1000);
    EXPECT_DOUBLE_EQ(one.usual.wire_us, 20);
    EXPECT_DOUBLE_EQ(one.usual.expert_us, 40);
    EXPECT_DOUBLE_EQ(one.sum_of_parts(), 1);
}

TEST(HopReport, tells_when_parts_are_not_the_whole) {
    std::vector<ExchangeParts> exchanges(10, parts(10, 20, 30, 40));
    for (ExchangeParts& one : exchanges) one.wire_us = 10;
    EXPECT_DOUBLE_EQ(summarise(exchanges).sum_of_parts(), 0.9);
}

TEST(HopReport, has_a_line_for_each_case) {
    HopCase one = summarise(std::vector<ExchangeParts>(10, parts(10, 20, 30, 40)));
    one.fan_out = 8;
    one.rows = 64;
    one.has_bulk = true;
    const std::string text = hop_text(std::span(&one, 1));
    EXPECT_THAT(text, HasSubstr("100 %"));
    EXPECT_EQ(hop_json(std::span(&one, 1)).at("cases").at(0).at("servers"), 8);
    EXPECT_EQ(hop_json(std::span(&one, 1)).at("cases").at(0).at("sum_of_parts"), 1.0);
}

}  // namespace
}  // namespace k3pod

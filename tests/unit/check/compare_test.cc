#include <gtest/gtest.h>

#include "lines.h"

namespace k3pod {
namespace {

using testing::line_of;

Counterpart counterpart(const std::string& build, const std::string& ucx, int64_t time_ns) {
    Counterpart node;
    node.identity.build_id = build;
    node.identity.ucx_version = ucx;
    node.unix_time_ns = time_ns;
    return node;
}

TEST(CompareNodes, of_one_build_and_one_time_agree_wherever_ucx_lies) {
    const auto lines = compare_nodes(counterpart("a", "1.17.0 (/usr/lib)", 5'000'000'000),
                                     counterpart("a", "1.17.0 (/opt/lib)", 4'990'000'000));
    EXPECT_EQ(worst_of(lines), Verdict::kOk);
    EXPECT_EQ(line_of(lines, "clock").found, "10.0 ms apart");
}

TEST(CompareNodes, of_two_builds_or_two_ucx_releases_fail) {
    const auto lines =
        compare_nodes(counterpart("a", "1.17.0 (x)", 0), counterpart("b", "1.16.0 (x)", 0));
    EXPECT_EQ(line_of(lines, "build id").verdict, Verdict::kFailure);
    EXPECT_EQ(line_of(lines, "build id").found, "b");
    EXPECT_EQ(line_of(lines, "build id").expected, "a");
    EXPECT_EQ(line_of(lines, "ucx release").verdict, Verdict::kFailure);
}

TEST(CompareNodes, with_clocks_more_than_a_second_apart_are_warned) {
    const auto lines =
        compare_nodes(counterpart("a", "1 (x)", 0), counterpart("a", "1 (x)", 1'500'000'000));
    EXPECT_EQ(line_of(lines, "clock").verdict, Verdict::kWarning);
    EXPECT_EQ(line_of(lines, "clock").found, "1500.0 ms apart");
}

}  // namespace
}  // namespace k3pod

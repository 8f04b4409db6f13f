#include <gtest/gtest.h>

#include <algorithm>

#include "k3pod/metrics/metrics.h"

namespace k3pod {
namespace {

TEST(Buckets, one_two_five_stops_at_the_limit) {
    EXPECT_EQ(one_two_five_buckets(20), (std::vector<double>{1, 2, 5, 10, 20}));
    EXPECT_EQ(one_two_five_buckets(49), (std::vector<double>{1, 2, 5, 10, 20}));
    EXPECT_EQ(one_two_five_buckets(1), (std::vector<double>{1}));
    EXPECT_TRUE(one_two_five_buckets(0).empty());
}

TEST(Buckets, one_two_five_copes_with_the_largest_limit) {
    EXPECT_EQ(one_two_five_buckets(INT64_MAX).back(), 5e18);
}

TEST(Buckets, time_bounds_are_those_of_the_dashboards) {
    EXPECT_EQ(ttft_buckets().size(), 22u);
    EXPECT_EQ(ttft_buckets().back(), 2560);
    EXPECT_EQ(inter_token_buckets().size(), 19u);
    EXPECT_EQ(inter_token_buckets().back(), 80);
    EXPECT_EQ(request_time_buckets().size(), 21u);
    EXPECT_EQ(request_time_buckets().back(), 7680);
    EXPECT_EQ(exchange_buckets().front(), 10e-6);
    EXPECT_EQ(exchange_buckets().back(), 1);
    for (const auto* bounds :
         {&ttft_buckets(), &inter_token_buckets(), &request_time_buckets(), &exchange_buckets()}) {
        EXPECT_TRUE(std::is_sorted(bounds->begin(), bounds->end()));
    }
}

}  // namespace
}  // namespace k3pod

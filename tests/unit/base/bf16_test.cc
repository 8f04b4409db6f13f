#include "k3pod/base/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace k3pod {
namespace {

TEST(Bf16, rounds_to_nearest_even) {
    EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
    EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // halfway, even below
    EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);  // halfway, even above
    EXPECT_EQ(to_bf16(-2.5f).bits, 0xc020);
}

TEST(Bf16, keeps_infinity_and_nan) {
    EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
    EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
    EXPECT_EQ(to_bf16(3.4e38f).bits, 0x7f80);  // rounds up to infinity
}

}  // namespace
}  // namespace k3pod

#include "k3pod/base/status.h"

#include <gtest/gtest.h>

namespace k3pod {
namespace {

Result<int> half(int v) {
    if (v % 2 != 0) return invalid_argument("value 3 is odd");
    return v / 2;
}

Status quarter(int v, int* out) {
    K3POD_ASSIGN(const int h, half(v));
    K3POD_ASSIGN(*out, half(h));
    return Status::ok();
}

TEST(Status, default_is_ok_and_prints_ok) {
    EXPECT_TRUE(Status().is_ok());
    EXPECT_EQ(Status().to_string(), "ok");
    EXPECT_EQ(Status().message(), "");
}

TEST(Status, error_keeps_code_and_message_through_copies) {
    const Status a = unavailable("spark-1 is gone");
    const Status b = a;
    EXPECT_EQ(b.code(), Code::kUnavailable);
    EXPECT_EQ(b.to_string(), "unavailable: spark-1 is gone");
    EXPECT_EQ(b.with_context("step 7").message(), "step 7: spark-1 is gone");
}

TEST(Result, assign_returns_the_first_failure) {
    int out = -1;
    EXPECT_TRUE(quarter(8, &out).is_ok());
    EXPECT_EQ(out, 2);
    EXPECT_EQ(quarter(6, &out).message(), "value 3 is odd");
}

TEST(ResultDeath, access_without_value_aborts_with_the_reason) {
    EXPECT_DEATH((void)half(3).value(), "value 3 is odd");
}

}  // namespace
}  // namespace k3pod

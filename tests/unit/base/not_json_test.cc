#include "k3pod/base/not_json.h"

#include <gtest/gtest.h>

#include <string>

namespace k3pod {
namespace {

TEST(NotJson, names_line_and_column_of_the_byte_that_cannot_stand_there) {
    EXPECT_EQ(not_json("{\"a\": 1,\n \"b\": x}", "a wrong literal"),
              "not valid JSON at line 2, column 7: a wrong literal");
    EXPECT_EQ(not_json("[1, 2", "why"), "not valid JSON at line 1, column 6: why");
    EXPECT_EQ(not_json("[1]\n]", "why"), "not valid JSON at line 2, column 1: why");
    EXPECT_EQ(not_json("", "why"), "not valid JSON at line 1, column 1: why");
}

TEST(NotJson, names_no_place_when_only_a_limit_of_the_parser_was_broken) {
    EXPECT_EQ(not_json("{\"a\": [1, 2.5, null]}", "too deep"), "not valid JSON: too deep");
    EXPECT_EQ(not_json("1e999", "too large"), "not valid JSON: too large");
}

}  // namespace
}  // namespace k3pod

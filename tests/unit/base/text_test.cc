#include "k3pod/base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace k3pod {
namespace {

using namespace std::string_literals;

TEST(EscapeControls, leaves_text_of_any_language_alone) {
    const std::string text = "spark-1 är 日本 🎉 \"%s\" \\n";
    EXPECT_EQ(escape_controls(text), text);
    EXPECT_FALSE(has_controls(text));
}

TEST(EscapeControls, shows_what_a_terminal_or_a_log_would_obey) {
    EXPECT_EQ(escape_controls("a\nb\tc\rd"), "a\\nb\\tc\\rd");
    EXPECT_EQ(escape_controls("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
    EXPECT_EQ(escape_controls("a\0b"s), "a\\x00b");
    EXPECT_EQ(escape_controls("\xc2\x9b"), "\\xc2\\x9b");  // U+009B, the one-character CSI
    EXPECT_TRUE(has_controls("a\nb"));
}

TEST(EscapeControls, shows_bytes_that_are_not_utf8) {
    EXPECT_EQ(escape_controls("\x9b"), "\\x9b");
    EXPECT_EQ(escape_controls("a\xc3"), "a\\xc3");
    EXPECT_EQ(escape_controls("\xe6\x97 "), "\\xe6\\x97 ");
    EXPECT_EQ(escape_controls("\xff\xfe"), "\\xff\\xfe");
}

TEST(EscapeControls, keeps_the_characters_that_it_is_told_to_keep) {
    EXPECT_EQ(escape_controls("a\n\tb\x1b", "\n\t"), "a\n\tb\\x1b");
}

TEST(Shortened, cuts_long_text_between_characters_and_says_so) {
    EXPECT_EQ(shortened("", 4), "");
    EXPECT_EQ(shortened("abcd", 4), "abcd");
    EXPECT_EQ(shortened("abcde", 4), "abcd...");
    EXPECT_EQ(shortened("abc\xe6\x97\xa5", 4), "abc...");
    EXPECT_EQ(shortened("\x80\x80\x80", 2), "...");
}

}  // namespace
}  // namespace k3pod

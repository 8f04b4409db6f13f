#include <gtest/gtest.h>

#include <random>

#include "tests/support/tiny_tokenizer.h"

namespace k3pod::testing {
namespace {

// All pieces joined, with what finish() gives.
std::string assembled(const std::vector<std::string>& pieces) {
    Utf8Assembler assembler;
    std::string text;
    for (const std::string& piece : pieces) text += assembler.push(piece);
    return text + assembler.finish();
}

TEST(Utf8Assembler, holds_a_character_back_until_it_is_complete) {
    Utf8Assembler assembler;
    EXPECT_EQ(assembler.push("a\xF0\x9F"), "a");
    EXPECT_EQ(assembler.push("\x8E"), "");
    EXPECT_EQ(assembler.push("\x89 b"), "🎉 b");
    EXPECT_EQ(assembler.finish(), "");
}

TEST(Utf8Assembler, a_character_that_never_completes_is_one_replacement) {
    EXPECT_EQ(assembled({"x", "\xF0\x9F\x8E"}), "x\uFFFD");
    EXPECT_EQ(assembled({"\xF0\x9F", "y"}), "\uFFFDy");
    EXPECT_EQ(assembled({"\xE6", "\xE6\x97\xA5"}), "\uFFFD日");
}

TEST(Utf8Assembler, is_empty_after_finish) {
    Utf8Assembler assembler;
    EXPECT_EQ(assembler.push("\xE6"), "");
    EXPECT_EQ(assembler.finish(), "\uFFFD");
    EXPECT_EQ(assembler.push("\x97"), "\uFFFD");
    EXPECT_EQ(assembler.finish(), "");
}

TEST(Utf8Assembler, one_replacement_per_maximal_invalid_part) {
    EXPECT_EQ(assembled({"\x80\xBF"}), "\uFFFD\uFFFD") << "continuations alone";
    EXPECT_EQ(assembled({"\xC0\x80"}), "\uFFFD\uFFFD") << "overlong form of NUL";
    EXPECT_EQ(assembled({"\xED\xA0\x80"}), "\uFFFD\uFFFD\uFFFD") << "surrogate";
    EXPECT_EQ(assembled({"\xF4\x90\x80\x80"}), "\uFFFD\uFFFD\uFFFD\uFFFD") << "above U+10FFFF";
    EXPECT_EQ(assembled({"\xE2\x82z"}), "\uFFFDz") << "cut character";
    EXPECT_EQ(assembled({"\xFEz\xFF"}), "\uFFFDz\uFFFD");
}

TEST(Utf8Assembler, cutting_the_bytes_elsewhere_changes_nothing) {
    constexpr uint32_t kSeed = 99;
    std::mt19937 random(kSeed);
    for (int round = 0; round < 2000; ++round) {
        std::string bytes;
        for (int i = 0; i < 24; ++i) {
            constexpr std::string_view kBytes = "a\xF0\x9F\x8E\x89\xE6\x97\xA5\xC3\xED\xA0\xFF";
            bytes += kBytes[random() % kBytes.size()];
        }
        std::vector<std::string> pieces;
        for (size_t at = 0; at < bytes.size();) {
            pieces.push_back(bytes.substr(at, random() % 4));
            at += pieces.back().size();
        }
        ASSERT_EQ(assembled(pieces), assembled({bytes})) << "round " << round << ", seed " << kSeed;
    }
}

TEST(Utf8Assembler, tokens_of_split_characters_join_to_the_text) {
    const std::string text = "🎉 👨‍👩‍👧‍👦 𠮷野家 é";
    std::vector<std::string> pieces;
    for (const int32_t id : encode_tiny(text)) pieces.emplace_back(tiny_tokenizer().bytes(id));
    ASSERT_GT(pieces.size(), 20u) << "most characters span several tokens";
    EXPECT_EQ(assembled(pieces), text);
}

}  // namespace
}  // namespace k3pod::testing

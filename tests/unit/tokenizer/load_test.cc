#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "k3pod/tokenizer/tokenizer.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/unit/tokenizer/vocabulary.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;

// A folder that loads with vocab_size 512, for one thing to be broken.
class TokenizerLoad : public ::testing::Test {
  protected:
    TokenizerLoad() {
        dir_.write("tiktoken.model", rank_file());
        dir_.write("tokenizer_config.json", control_file(256, k3_control_names()));
    }

    Status load(int32_t vocab_size = 512) const {
        return Tokenizer::load(dir_.path(), vocab_size).status();
    }

    // Loads with this control table; returns the refusal.
    std::string refusal_of(const ControlNames& names) {
        dir_.write("tokenizer_config.json", control_file(256, names));
        return load().message();
    }

    VocabularyDir dir_;
};

TEST_F(TokenizerLoad, accepts_the_smallest_vocabulary) {
    EXPECT_EQ(load().to_string(), "ok");
}

TEST_F(TokenizerLoad, accepts_ranks_in_any_order) {
    dir_.write("tiktoken.model", base64("ab") + " 256\n" + rank_file());
    dir_.write("tokenizer_config.json", control_file(257, k3_control_names()));
    EXPECT_EQ(load(513).to_string(), "ok");
}

TEST_F(TokenizerLoad, names_a_missing_file) {
    dir_.remove("tiktoken.model");
    EXPECT_EQ(load().code(), Code::kNotFound);
    EXPECT_THAT(load().message(), HasSubstr((dir_.path() / "tiktoken.model").string()));

    dir_.write("tiktoken.model", rank_file());
    dir_.remove("tokenizer_config.json");
    EXPECT_EQ(load().code(), Code::kNotFound);
    EXPECT_THAT(load().message(), HasSubstr((dir_.path() / "tokenizer_config.json").string()));
}

TEST_F(TokenizerLoad, refuses_a_folder_in_place_of_a_file) {
    dir_.remove("tiktoken.model");
    std::filesystem::create_directory(dir_.path() / "tiktoken.model");
    EXPECT_THAT(load().message(), HasSubstr("tiktoken.model is a folder, expected a regular file"));
}

struct BadLine {
    std::string line;
    std::string expected;
    friend void PrintTo(const BadLine& b, std::ostream* out) { *out << b.line; }
};

class TokenizerRankLine : public TokenizerLoad, public ::testing::WithParamInterface<BadLine> {};

// The 256 single bytes are lines 1 to 256, so the bad line is 257.
TEST_P(TokenizerRankLine, is_refused_with_file_line_and_value) {
    dir_.write("tiktoken.model", rank_file() + GetParam().line + "\n");
    EXPECT_EQ(load(513).code(), Code::kInvalidArgument);
    EXPECT_EQ(load(513).message(),
              (dir_.path() / "tiktoken.model").string() + " line 257: " + GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, TokenizerRankLine,
    ::testing::Values(
        BadLine{"", "expected base64, a space and a rank, found \"\""},
        BadLine{"YWI=", "expected base64, a space and a rank, found \"YWI=\""},
        BadLine{"YW!= 256", "\"YW!=\" is not base64"}, BadLine{"YWI 256", "\"YWI\" is not base64"},
        BadLine{" 256", "\"\" is not base64"}, BadLine{"Y=I= 256", "\"Y=I=\" is not base64"},
        BadLine{"YWI= ", "\"\" is not a rank from 0 on"},
        BadLine{"YWI= -1", "\"-1\" is not a rank from 0 on"},
        BadLine{"YWI= 256\r", "\"256\\x0d\" is not a rank from 0 on"},
        BadLine{"YWI= 99999999999", "\"99999999999\" is not a rank from 0 on"},
        BadLine{"YWI= 7", "rank 7 is given twice, first in line 8"},
        BadLine{
            "YWI= 258",
            "rank 258 is given but rank 256 is missing from the file; ranks must be dense from 0"},
        BadLine{"YQ== 256", "rank 256 has the bytes of rank 97"}));

TEST_F(TokenizerLoad, refuses_ranks_that_lack_a_single_byte) {
    std::string text = rank_file();
    const std::string last_byte = base64("\xff");
    text.replace(text.find(last_byte), last_byte.size(), base64("ab"));
    dir_.write("tiktoken.model", text);
    EXPECT_THAT(load().message(), HasSubstr("none of them for the single byte 0xff"));
}

TEST_F(TokenizerLoad, refuses_an_empty_rank_file) {
    dir_.write("tiktoken.model", "");
    EXPECT_THAT(load(256).message(),
                HasSubstr("has 0 ranks, none of them for the single byte 0x00"));
}

TEST_F(TokenizerLoad, refuses_another_vocab_size_with_all_the_numbers) {
    EXPECT_EQ(load(513).message(),
              (dir_.path() / "tiktoken.model").string() +
                  ": has 256 ranks, which with 256 control ids make 512; the model's vocab_size is "
                  "513: take tiktoken.model and config.json from the same release");
}

TEST_F(TokenizerLoad, refuses_the_control_table_of_another_model_of_the_family) {
    ControlNames names = k3_control_names();
    names[3] = "<|im_user|>";
    names[4] = "<|im_assistant|>";
    EXPECT_EQ(refusal_of(names),
              (dir_.path() / "tokenizer_config.json").string() +
                  ": id 259 is \"<|im_user|>\", expected \"<|open|>\": this is not K3's control "
                  "table; take tokenizer_config.json from the K3 release");
}

TEST_F(TokenizerLoad, refuses_a_missing_marker) {
    ControlNames names = k3_control_names();
    names.erase(5);
    EXPECT_THAT(refusal_of(names), HasSubstr("id 261 is not named, expected \"<|sep|>\""));
}

TEST_F(TokenizerLoad, refuses_control_ids_outside_their_range) {
    ControlNames names = k3_control_names();
    names[256] = "[MASK]";
    EXPECT_THAT(refusal_of(names), HasSubstr("names id 512, but the control ids are 256 to 511"));
    names.erase(256);
    names[-1] = "[MASK]";
    EXPECT_THAT(refusal_of(names), HasSubstr("names id 255, but the control ids are 256 to 511"));
}

TEST_F(TokenizerLoad, refuses_a_spelling_given_twice) {
    ControlNames names = k3_control_names();
    names[9] = "<|sep|>";
    EXPECT_THAT(refusal_of(names), HasSubstr("ids 261 and 265 are both named \"<|sep|>\""));
    names[9] = "<|reserved_token_266|>";
    EXPECT_THAT(refusal_of(names), HasSubstr("ids 265 and 266 are both named"));
}

TEST_F(TokenizerLoad, refuses_a_broken_control_file) {
    const auto refusal = [&](std::string_view text) {
        dir_.write("tokenizer_config.json", text);
        return load().message();
    };
    EXPECT_THAT(refusal("{"),
                HasSubstr("tokenizer_config.json: not valid JSON at line 1, column 2: "));
    EXPECT_THAT(refusal("[]"), HasSubstr("has no object added_tokens_decoder"));
    EXPECT_THAT(refusal(R"({"added_tokens_decoder": []})"), HasSubstr("has no object"));
    EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"x1": {}}})"),
                HasSubstr("key \"x1\" is not an id"));
    EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"256": {"content": 3, "special": true}}})"),
                HasSubstr("id 256 needs a text \"content\""));
    EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("not valid JSON"));
}

TEST(TokenizerControl, every_id_maps_to_one_text_and_back) {
    const Tokenizer& tokenizer = tiny_tokenizer();
    for (int32_t id = 2048; id < 2304; ++id) {
        EXPECT_TRUE(tokenizer.is_control(id));
        EXPECT_EQ(tokenizer.control_id(tokenizer.bytes(id)), id);
    }
    EXPECT_EQ(tokenizer.bytes(2048), "[BOS]");
    EXPECT_EQ(tokenizer.bytes(2056), "<|reserved_token_2056|>");
    EXPECT_EQ(tokenizer.bytes(2113), "<osagent_mode>");
    EXPECT_EQ(tokenizer.bytes(2303), "[PAD]");
    EXPECT_EQ(tokenizer.control_id("<|no such|>"), std::nullopt);
}

TEST(TokenizerControl, markers_are_those_of_the_table) {
    const Tokenizer::Markers& markers = tiny_tokenizer().markers();
    EXPECT_EQ(markers.eos, 2049);
    EXPECT_EQ(markers.end_of_msg, 2050);
    EXPECT_EQ(markers.open, 2051);
    EXPECT_EQ(markers.close, 2052);
    EXPECT_EQ(markers.sep, 2053);
}

TEST(TokenizerControl, special_is_what_the_file_says_and_unnamed_ids_are_special) {
    const Tokenizer& tokenizer = tiny_tokenizer();
    EXPECT_TRUE(tokenizer.is_special(2050));
    EXPECT_FALSE(tokenizer.is_special(2051));
    EXPECT_TRUE(tokenizer.is_special(2056));
    EXPECT_FALSE(tokenizer.is_special(0));
    EXPECT_FALSE(tokenizer.is_special(2304));
}

TEST(TokenizerControl, ids_outside_the_vocabulary_have_no_bytes) {
    EXPECT_EQ(tiny_tokenizer().vocab_size(), 2304);
    EXPECT_EQ(tiny_tokenizer().bytes(-1), "");
    EXPECT_EQ(tiny_tokenizer().bytes(2304), "");
    EXPECT_FALSE(tiny_tokenizer().is_control(2047));
}

}  // namespace
}  // namespace k3pod::testing

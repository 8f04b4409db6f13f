#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <unordered_map>

#include "tests/support/tiny_tokenizer.h"
#include "tests/unit/tokenizer/vocabulary.h"

namespace k3pod::testing {
namespace {

using Ids = std::vector<int32_t>;

std::string repeated(std::string_view text, int32_t count) {
    std::string all;
    for (int32_t i = 0; i < count; ++i) all += text;
    return all;
}

Ids joined(Ids a, const Ids& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST(TokenizerEncode, agrees_with_every_golden_text) {
    std::ifstream in(K3POD_SOURCE_DIR "/tests/golden/k3-tiny/golden.json");
    const auto cases = nlohmann::json::parse(in).at("encode");
    ASSERT_EQ(cases.size(), 14u);
    for (const auto& c : cases) {
        const std::string text = c.at("text");
        EXPECT_EQ(encode_tiny(text), c.at("ids").get<Ids>()) << text;
    }
}

TEST(TokenizerEncode, appends) {
    Ids ids = {7};
    tiny_tokenizer().encode(" ", ids);
    EXPECT_EQ(ids, (Ids{7, 220}));
}

TEST(TokenizerEncode, text_that_spells_control_ids_is_ordinary) {
    for (int32_t id = 2048; id < 2304; ++id) {
        const std::string text(tiny_tokenizer().bytes(id));
        const Ids ids = encode_tiny("a " + text + text);
        EXPECT_EQ(decode_tiny(ids), "a " + text + text);
        EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 2048) << text;
    }
}

bool is_utf8(std::string_view text) {
    Utf8Assembler assembler;
    return assembler.push(text) == text && assembler.finish().empty();
}

TEST(TokenizerEncode, ordinary_ids_map_to_text_and_back) {
    int32_t num_texts = 0;
    for (int32_t id = 0; id < 2048; ++id) {
        const std::string_view text = tiny_tokenizer().bytes(id);
        EXPECT_FALSE(text.empty());
        if (!is_utf8(text)) continue;  // Half a character: its bytes are encoded one by one.
        ++num_texts;
        EXPECT_EQ(encode_tiny(text), Ids{id}) << text;
    }
    EXPECT_EQ(num_texts, 1891);
}

// ---- where the pre-tokeniser parts text ----

struct Border {
    std::string text;  // With "|" at each border.
    std::string why;
    friend void PrintTo(const Border& b, std::ostream* out) { *out << b.text << ": " << b.why; }
};

// Encodes with a vocabulary in which every prefix of the text and of each piece is a token. A piece
// is then one token, unless it is parted; and the text is one token, unless it is parted.
std::vector<std::string> pieces_of(const std::vector<std::string>& pieces,
                                   const std::string& text) {
    std::vector<std::string> tokens;
    const auto add_prefixes = [&](const std::string& bytes) {
        for (size_t n = 2; n <= bytes.size(); ++n) {
            const std::string prefix = bytes.substr(0, n);
            if (std::find(tokens.begin(), tokens.end(), prefix) == tokens.end()) {
                tokens.push_back(prefix);
            }
        }
    };
    for (const std::string& piece : pieces) add_prefixes(piece);
    add_prefixes(text);
    const VocabularyDir dir;
    const auto num_ranks = static_cast<int32_t>(256 + tokens.size());
    dir.write("tiktoken.model", rank_file(tokens));
    dir.write("tokenizer_config.json", control_file(num_ranks, k3_control_names()));
    const auto tokenizer = Tokenizer::load(dir.path(), num_ranks + 256).value();
    Ids ids;
    tokenizer->encode(text, ids);
    std::vector<std::string> found;
    for (const int32_t id : ids) found.emplace_back(tokenizer->bytes(id));
    return found;
}

class TokenizerBorders : public ::testing::TestWithParam<Border> {};

TEST_P(TokenizerBorders, are_where_the_pattern_puts_them) {
    std::vector<std::string> pieces(1);
    std::string text;
    for (const char c : GetParam().text) {
        if (c == '|') {
            pieces.emplace_back();
        } else {
            pieces.back() += c;
            text += c;
        }
    }
    EXPECT_EQ(pieces_of(pieces, text), pieces) << GetParam().why;
}

INSTANTIATE_TEST_SUITE_P(
    Pattern, TokenizerBorders,
    ::testing::Values(
        Border{"日本語", "Han run"}, Border{"日本|のテ", "kana is not Han"},
        Border{"日|、", "the ideographic comma has Han only among its script extensions"},
        Border{"々|〆", "Han by script, and by script extension only"},
        Border{"a|日", "Han is not in the letter classes"}, Border{"1〇2", "Han numeral in digits"},
        Border{"!⺀", "Han symbol in punctuation"}, Border{"ABCdef", "upper then lower"},
        Border{"abc|Def", "a lower-case run ends before upper case"},
        Border{"(abc", "one leading character"}, Border{"((|abc", "only one"},
        Border{"\tabc", "a leading tab"}, Border{"\n|abc", "not a line feed"},
        Border{"ABC|1", "no digits in words"}, Border{"ʰ|A", "Lm counts as lower case first"},
        Border{"don't", "contraction"}, Border{"DON'T", "in upper case"},
        Border{"we'LL", "in mixed case"}, Border{"it'ſ", "the long s folds to s"},
        Border{"it|'x", "no contraction"}, Border{"e\u0301a", "marks are in both classes"},
        Border{"123|4", "three digits"}, Border{"١٢٣|½", "numbers of every kind"},
        Border{" !?\n\n", "punctuation with line ends"}, Border{"!?\n|x", "and no more"},
        Border{"  \r\n\n", "space with line ends"}, Border{"  \n|  ", "up to the last line end"},
        Border{"  | x", "space but the last"}, Border{"   ", "space at the end"},
        Border{"a|\u00a0", "no-break space is space"},
        Border{"\u180e!", "the Mongolian vowel separator is not"},
        Border{"!/", "a slash is punctuation"},
        Border{"\u0001\u0002", "controls are punctuation"}));

// ---- long text ----

TEST(TokenizerEncode, cuts_a_run_after_25000_code_points) {
    // "in" is a token and "inin" is not. The first character puts the cut inside an "in".
    const std::string text = "x" + repeated("in", 20'000);
    const Ids ids = encode_tiny(text);
    EXPECT_EQ(ids, joined(encode_tiny(text.substr(0, 25'000)), encode_tiny(text.substr(25'000))));
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 275), 19'999);
}

TEST(TokenizerEncode, does_not_cut_a_run_of_25000) {
    const Ids ids = encode_tiny(repeated("in", 12'500) + " " + repeated("in", 12'499));
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 275), 12'500 + 12'498);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 310), 1);  // " in"
}

TEST(TokenizerEncode, counts_code_points_not_bytes_and_python_spaces) {
    // U+001C is space for the cut, so neither side is longer than 25,000.
    const std::string text = repeated("日", 24'999) + "\x1c" + repeated("日", 1) + "日本語";
    EXPECT_EQ(encode_tiny(text).back(), 1459);
    const std::string run = repeated("日", 24'999) + "日本語";
    EXPECT_EQ(encode_tiny(run).back(), 1456) << "本語 behind the cut";
}

TEST(TokenizerEncode, cuts_text_after_400000_code_points) {
    // 400,000 is one more than a multiple of three: the cut falls inside an "in".
    const std::string text = repeated("in ", 133'334);
    const Ids ids = encode_tiny(text);
    EXPECT_EQ(ids, joined(encode_tiny(text.substr(0, 400'000)), encode_tiny(text.substr(400'000))));
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 310), 133'332);  // " in"
}

double cpu_seconds() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kLongTextSeconds = 20;
#else
constexpr double kLongTextSeconds = 2;
#endif

class TokenizerLongRun : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerLongRun, of_a_million_is_encoded_in_time_and_decodes) {
    const std::string text = repeated(GetParam(), 1'000'000);
    const double start = cpu_seconds();
    const Ids ids = encode_tiny(text);
    EXPECT_LT(cpu_seconds() - start, kLongTextSeconds);
    EXPECT_TRUE(decode_tiny(ids) == text);
}

INSTANTIATE_TEST_SUITE_P(Characters, TokenizerLongRun,
                         ::testing::Values("a", "A", "^", " ", "\n", "日", "🎉", "in", "\xff", "0"));

// ---- anything ----

// What rank BPE is, without any cleverness.
Ids slow_bpe(std::string_view piece) {
    static const auto rank_of = [] {
        std::unordered_map<std::string_view, int32_t> ranks;
        for (int32_t id = 0; id < 2048; ++id) ranks[tiny_tokenizer().bytes(id)] = id;
        return ranks;
    }();
    std::vector<std::string> parts;
    for (const char c : piece) parts.emplace_back(1, c);
    for (;;) {
        size_t best = parts.size();
        int32_t best_rank = 2048;
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto at = rank_of.find(parts[i] + parts[i + 1]);
            if (at == rank_of.end() || at->second >= best_rank) continue;
            best = i;
            best_rank = at->second;
        }
        if (best == parts.size()) break;
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    Ids ids;
    for (const std::string& part : parts) ids.push_back(rank_of.at(part));
    return ids;
}

TEST(TokenizerEncode, merges_as_the_definition_says) {
    constexpr uint32_t kSeed = 20260;
    std::mt19937 random(kSeed);
    constexpr std::string_view kLetters = "aeinrstoh";
    for (int round = 0; round < 2000; ++round) {
        std::string word;
        for (auto n = random() % 40 + 1; n > 0; --n) word += kLetters[random() % kLetters.size()];
        ASSERT_EQ(encode_tiny(word), slow_bpe(word)) << word << ", seed " << kSeed;
    }
}

TEST(TokenizerEncode, decoding_gives_back_any_bytes) {
    constexpr uint32_t kSeed = 4711;
    std::mt19937 random(kSeed);
    for (int round = 0; round < 2000; ++round) {
        std::string bytes;
        for (auto n = random() % 60; n > 0; --n) bytes += static_cast<char>(random() % 256);
        const Ids ids = encode_tiny(bytes);
        ASSERT_EQ(decode_tiny(ids), bytes) << "round " << round << ", seed " << kSeed;
        for (const int32_t id : ids) ASSERT_LT(id, 2048) << "round " << round << ", seed " << kSeed;
    }
}

TEST(TokenizerEncode, invalid_utf8_is_encoded_byte_by_byte) {
    const auto ids_of_bytes = [](std::string_view bytes) {
        Ids ids;
        for (const char c : bytes) ids = joined(ids, encode_tiny(std::string(1, c)));
        return ids;
    };
    // F0 9F is a token, but not where it starts no character.
    EXPECT_EQ(encode_tiny("a\xF0\x9F"), joined(encode_tiny("a"), ids_of_bytes("\xF0\x9F")));
    EXPECT_EQ(encode_tiny("\xC3"), ids_of_bytes("\xC3"));
    EXPECT_EQ(encode_tiny("\xED\xA0\x80"), ids_of_bytes("\xED\xA0\x80"));
    EXPECT_EQ(encode_tiny("in\xFFin"), (Ids{275, 187, 275}));
}

}  // namespace
}  // namespace k3pod::testing

#include "tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <string>
#include <utility>

#include "tokenizer/utf8.h"

namespace k3pod {
namespace {

// The first alternative that matches wins, not the longest. The pattern was written for another
// engine, so three things are spelled out here. Whitespace is Unicode's White_Space: PCRE2's own \s
// has U+180E besides. Han is the script property: \p{Han} alone would add its script extensions,
// such as the ideographic comma. And PCRE2 has no class intersection, so "letters and marks of
// these kinds, not Han" is the complement of all that is neither.
std::string pattern_text() {
    const std::string space =
        R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
    const std::string neither = R"(\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han})";
    const std::string upper = "[^" + neither + R"(\p{Ll}])";
    const std::string lower = "[^" + neither + R"(\p{Lu}\p{Lt}])";
    const std::string lead = R"([^\r\n\p{L}\p{N}]?)";
    const std::string contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    const std::array<std::string, 8> alternatives = {
        R"(\p{sc:Han}+)",
        lead + upper + "*" + lower + "+" + contraction,
        lead + upper + "+" + lower + "*" + contraction,
        R"(\p{N}{1,3})",
        " ?[^" + space + R"(\p{L}\p{N}]+[\r\n]*)",
        "[" + space + R"(]*[\r\n]+)",
        "[" + space + "]+(?![^" + space + "])",
        "[" + space + "]+",
    };
    std::string pattern;
    for (const std::string& alternative : alternatives) {
        if (!pattern.empty()) pattern += '|';
        pattern += alternative;
    }
    return pattern;
}

constexpr uint32_t kHeapLimitKib = 16 << 10;

// Calls the function given as template argument, for handles that a C library frees.
template <auto kFree>
struct Freed {
    template <class T>
    void operator()(T* handle) const {
        kFree(handle);
    }
};

using Program = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;

}  // namespace

struct PreTokenizer::Pattern {
    Program program;
    MatchContext limits;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Pattern> pattern) : pattern_(std::move(pattern)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create() {
    const std::string text = pattern_text();
    int error = 0;
    size_t error_offset = 0;
    auto pattern = std::make_unique<Pattern>();
    // Anchored, because the alternatives cover every character: each match starts where the last
    // ended.
    pattern->program.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                         PCRE2_UTF | PCRE2_ANCHORED, &error, &error_offset,
                                         nullptr));
    if (pattern->program == nullptr) {
        std::array<PCRE2_UCHAR, 256> reason{};
        pcre2_get_error_message(error, reason.data(), reason.size());
        return failed_precondition(fmt::format(
            "this PCRE2 ({}.{}) refuses the pre-tokeniser's pattern at byte {}: {}; version "
            "10.40 or later with Unicode is needed",
            PCRE2_MAJOR, PCRE2_MINOR, error_offset, reinterpret_cast<const char*>(reason.data())));
    }
    // Where there is no JIT this fails and matching interprets, to the same result.
    (void)pcre2_jit_compile(pattern->program.get(), PCRE2_JIT_COMPLETE);
    pattern->limits.reset(pcre2_match_context_create(nullptr));
    pcre2_set_heap_limit(pattern->limits.get(), kHeapLimitKib);
    return PreTokenizer(std::move(pattern));
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
    pieces.clear();
    const MatchData match(pcre2_match_data_create(1, nullptr));
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (size_t at = 0; at < text.size();) {
        const int found = pcre2_match(pattern_->program.get(), subject, text.size(), at,
                                      PCRE2_NO_UTF_CHECK, match.get(), pattern_->limits.get());
        // No text is known to run into PCRE2's limits; if one does, a character is a piece.
        const size_t end = found > 0
                               ? pcre2_get_ovector_pointer(match.get())[1]
                               : at + static_cast<size_t>(next_utf8(text.substr(at)).num_bytes);
        pieces.push_back(text.substr(at, end - at));
        at = end;
    }
}

}  // namespace k3pod

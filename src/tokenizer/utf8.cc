#include "tokenizer/utf8.h"

#include <string>

#include "k3pod/tokenizer/tokenizer.h"

namespace k3pod {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
    int32_t num_bytes;  // 0: no character starts with this byte.
    uint8_t second_min, second_max;
};

// The bounds of the second byte exclude overlong forms, surrogates and values above U+10FFFF, so a
// sequence is refused at its first impossible byte.
Lead lead_of(uint8_t byte) {
    const auto bounded = [](int32_t num_bytes, int min, int max) {
        return Lead{num_bytes, static_cast<uint8_t>(min), static_cast<uint8_t>(max)};
    };
    if (byte >= 0xC2 && byte <= 0xDF) return bounded(2, 0x80, 0xBF);
    if (byte >= 0xE0 && byte <= 0xEF) {
        return bounded(3, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF);
    }
    if (byte >= 0xF0 && byte <= 0xF4) {
        return bounded(4, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF);
    }
    return bounded(0, 0, 0);
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
    using Kind = Utf8Step::Kind;
    const auto first = static_cast<uint8_t>(text[0]);
    if (first < 0x80) return {Kind::kCharacter, 1, first};
    const Lead lead = lead_of(first);
    if (lead.num_bytes == 0) return {Kind::kInvalid, 1, 0};
    char32_t code_point = first & (0x7Fu >> lead.num_bytes);
    for (int32_t i = 1; i < lead.num_bytes; ++i) {
        if (static_cast<size_t>(i) == text.size()) return {Kind::kUnfinished, i, 0};
        const auto byte = static_cast<uint8_t>(text[static_cast<size_t>(i)]);
        const bool fits =
            i == 1 ? byte >= lead.second_min && byte <= lead.second_max : (byte & 0xC0) == 0x80;
        if (!fits) return {Kind::kInvalid, i, 0};
        code_point = code_point << 6 | (byte & 0x3Fu);
    }
    return {Kind::kCharacter, lead.num_bytes, code_point};
}

std::string Utf8Assembler::push(std::string_view bytes) {
    held_ += bytes;
    std::string text;
    text.reserve(held_.size());
    std::string_view rest = held_;
    while (!rest.empty()) {
        const Utf8Step step = next_utf8(rest);
        if (step.kind == Utf8Step::Kind::kUnfinished) break;
        const auto num_bytes = static_cast<size_t>(step.num_bytes);
        text += step.kind == Utf8Step::Kind::kCharacter ? rest.substr(0, num_bytes) : kReplacement;
        rest.remove_prefix(num_bytes);
    }
    held_.erase(0, held_.size() - rest.size());
    return text;
}

std::string Utf8Assembler::finish() {
    if (held_.empty()) return {};
    held_.clear();
    return std::string(kReplacement);
}

}  // namespace k3pod

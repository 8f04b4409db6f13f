#include "k3pod/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace k3pod {
namespace {

// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none.
size_t character_bytes(std::string_view text) {
    const auto lead = static_cast<uint8_t>(text.front());
    const size_t size = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
    if (size == 0 || size > text.size()) return 0;
    const std::string_view rest = text.substr(1, size - 1);
    const bool is_whole = std::all_of(
        rest.begin(), rest.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; });
    return is_whole ? size : 0;
}

bool is_control(std::string_view character) {
    const auto first = static_cast<uint8_t>(character.front());
    if (character.size() == 1) return first < 0x20 || first == 0x7f;
    return first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0;  // U+0080 to U+009F
}

struct Character {
    std::string_view bytes;
    bool is_visible;
};

// Of a text that is not empty; a byte that begins no character stands for itself.
Character first_character(std::string_view text) {
    const size_t size = character_bytes(text);
    const std::string_view bytes = text.substr(0, std::max<size_t>(size, 1));
    return {bytes, size > 0 && !is_control(bytes)};
}

void append_escaped(std::string_view bytes, std::string& out) {
    constexpr std::string_view kShort = "\n\t\r", kLetters = "ntr";
    for (const char c : bytes) {
        const size_t at = kShort.find(c);
        out += at == std::string_view::npos ? fmt::format("\\x{:02x}", static_cast<uint8_t>(c))
                                            : std::string{'\\', kLetters[at]};
    }
}

}  // namespace

std::string escape_controls(std::string_view text, std::string_view kept) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const auto [bytes, is_visible] = first_character(text);
        if (is_visible || kept.find(bytes) != kept.npos) {
            out += bytes;
        } else {
            append_escaped(bytes, out);
        }
        text.remove_prefix(bytes.size());
    }
    return out;
}

bool has_controls(std::string_view text) {
    while (!text.empty()) {
        const auto [bytes, is_visible] = first_character(text);
        if (!is_visible) return true;
        text.remove_prefix(bytes.size());
    }
    return false;
}

std::string shortened(std::string_view text, size_t max_bytes) {
    if (text.size() <= max_bytes) return std::string(text);
    size_t end = max_bytes;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
    return std::string(text.substr(0, end)) + "...";
}

std::string_view without_bom(std::string_view text) {
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

}  // namespace k3pod

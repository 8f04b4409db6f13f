#include "api/chat/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace k3pod {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

void append_utf8(char32_t c, std::string& text) {
    const auto add = [&](char32_t bits) { text += static_cast<char>(bits); };
    if (c < 0x80) return add(c);
    if (c < 0x800) {
        add(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            add(0xE0 | c >> 12);
        } else {
            add(0xF0 | c >> 18);
            add(0x80 | (c >> 12 & 0x3F));
        }
        add(0x80 | (c >> 6 & 0x3F));
    }
    add(0x80 | (c & 0x3F));
}

}  // namespace

std::string_view json_kind_name(JsonKind kind) {
    switch (kind) {
        case JsonKind::kNull:
            return "null";
        case JsonKind::kBoolean:
            return "boolean";
        case JsonKind::kNumber:
            return "number";
        case JsonKind::kString:
            return "string";
        case JsonKind::kArray:
            return "array";
        case JsonKind::kObject:
            return "object";
    }
    return "";
}

// ---- errors and small steps ----

Status JsonReader::status() const {
    return failed_ ? invalid_argument(error_) : Status::ok();
}

bool JsonReader::fail(std::string_view expected) {
    if (failed_) return false;
    failed_ = true;
    std::string found = "the text ends";
    if (pos_ < text_.size()) {
        const char c = text_[pos_];
        const bool is_printable = c >= ' ' && c <= '~';
        found = is_printable ? fmt::format("found '{}'", c)
                             : fmt::format("found byte 0x{:02x}", static_cast<uint8_t>(c));
    }
    error_ = fmt::format("JSON byte {}: expected {}, {}", pos_, expected, found);
    return false;
}

void JsonReader::skip_space() {
    while (at(' ') || at('\n') || at('\r') || at('\t')) ++pos_;
}

bool JsonReader::finish() {
    skip_space();
    return !failed_ && (pos_ == text_.size() || fail("the end"));
}

// ---- structure ----

std::optional<JsonKind> JsonReader::peek() {
    skip_space();
    if (!failed_ && pos_ < text_.size()) {
        const char c = text_[pos_];
        if (c == '{') return JsonKind::kObject;
        if (c == '[') return JsonKind::kArray;
        if (c == '"') return JsonKind::kString;
        if (c == 't' || c == 'f') return JsonKind::kBoolean;
        if (c == 'n') return JsonKind::kNull;
        if (c == '-' || is_digit(c)) return JsonKind::kNumber;
    }
    fail("a value");
    return std::nullopt;
}

bool JsonReader::begin(char bracket) {
    skip_space();
    if (failed_ || !at(bracket)) return fail(fmt::format("'{}'", bracket));
    if (++depth_ > kMaxDepth) return fail(fmt::format("at most {} levels", kMaxDepth));
    ++pos_;
    just_opened_ = true;
    return true;
}

bool JsonReader::begin_object() {
    return begin('{');
}
bool JsonReader::begin_array() {
    return begin('[');
}

bool JsonReader::next_element(char closing_bracket) {
    skip_space();
    if (failed_) return false;
    const bool is_first = std::exchange(just_opened_, false);
    if (at(closing_bracket)) {
        ++pos_;
        --depth_;
        return false;
    }
    if (is_first) return true;
    if (!at(',')) return fail(fmt::format("',' or '{}'", closing_bracket));
    ++pos_;
    return true;
}

bool JsonReader::next_item() {
    return next_element(']');
}

bool JsonReader::next_member(std::string& key) {
    if (!next_element('}') || !read_string(key)) return false;
    skip_space();
    if (!at(':')) return fail("':'");
    ++pos_;
    return true;
}

bool JsonReader::read_value(std::string_view& source) {
    const auto kind = peek();
    if (!kind) return false;
    const size_t begin = pos_;
    std::string ignored_text;
    std::string_view ignored;
    if (*kind == JsonKind::kObject) {
        begin_object();
        while (next_member(ignored_text)) read_value(ignored);
    } else if (*kind == JsonKind::kArray) {
        begin_array();
        while (next_item()) read_value(ignored);
    } else if (*kind == JsonKind::kString) {
        read_string(ignored_text);
    } else {
        skip_scalar(*kind);
    }
    source = text_.substr(begin, pos_ - begin);
    return !failed_;
}

// ---- scalars ----

bool JsonReader::skip_scalar(JsonKind kind) {
    if (kind == JsonKind::kNumber) return skip_number();
    if (kind == JsonKind::kNull) return skip_word("null");
    return skip_word(at('t') ? "true" : "false");
}

bool JsonReader::skip_word(std::string_view word) {
    if (text_.substr(pos_, word.size()) != word) return fail(word);
    pos_ += word.size();
    return true;
}

bool JsonReader::skip_number() {
    if (at('-')) ++pos_;
    if (at('0')) {
        ++pos_;
    } else if (!skip_digits()) {
        return false;
    }
    if (at('.')) {
        ++pos_;
        if (!skip_digits()) return false;
    }
    if (at('e') || at('E')) {
        ++pos_;
        if (at('+') || at('-')) ++pos_;
        if (!skip_digits()) return false;
    }
    return true;
}

bool JsonReader::skip_digits() {
    if (pos_ == text_.size() || !is_digit(text_[pos_])) return fail("a digit");
    while (pos_ < text_.size() && is_digit(text_[pos_])) ++pos_;
    return true;
}

bool JsonReader::read_string(std::string& decoded) {
    decoded.clear();
    skip_space();
    if (failed_ || !at('"')) return fail("'\"'");
    ++pos_;
    while (!at('"')) {
        if (pos_ == text_.size()) return fail("'\"' at the end of a string");
        if (static_cast<uint8_t>(text_[pos_]) < 0x20)
            return fail("an escape for a control character");
        if (at('\\')) {
            if (!read_escape(decoded)) return false;
        } else {
            decoded += text_[pos_++];
        }
    }
    ++pos_;
    return true;
}

bool JsonReader::read_escape(std::string& decoded) {
    ++pos_;
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const size_t name = pos_ < text_.size() ? kNames.find(text_[pos_]) : std::string_view::npos;
    if (name != std::string_view::npos) {
        decoded += kMeanings[name];
        ++pos_;
        return true;
    }
    if (!at('u')) return fail("an escape");
    const auto unit = read_hex4();
    if (!unit) return false;
    if (*unit < 0xD800 || *unit > 0xDFFF) {
        append_utf8(*unit, decoded);
        return true;
    }
    // A surrogate means something only as the first of a pair.
    if (*unit > 0xDBFF || !at('\\')) return fail("a pair of surrogates");
    ++pos_;
    const auto second = read_hex4();
    if (!second || *second < 0xDC00 || *second > 0xDFFF) return fail("a pair of surrogates");
    append_utf8(0x10000 + ((*unit - 0xD800) << 10) + (*second - 0xDC00), decoded);
    return true;
}

// Reads uXXXX.
std::optional<uint32_t> JsonReader::read_hex4() {
    const std::string_view digits = text_.substr(std::min(pos_ + 1, text_.size()), 4);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value, 16);
    if (!at('u') || digits.size() < 4 || error != std::errc() || end != digits.end()) {
        fail("'u' and four hexadecimal digits");
        return std::nullopt;
    }
    pos_ += 5;
    return value;
}

// ---- writing ----

void append_json_escaped(std::string_view text, std::string& json) {
    for (const char c : text) {
        constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t";
        constexpr std::string_view kNames = "\"\\bfnrt";
        const size_t i = kMeanings.find(c);
        if (i != std::string_view::npos) {
            json += '\\';
            json += kNames[i];
        } else if (static_cast<uint8_t>(c) < 0x20) {
            json += fmt::format("\\u{:04x}", static_cast<uint8_t>(c));
        } else {
            json += c;
        }
    }
}

}  // namespace k3pod

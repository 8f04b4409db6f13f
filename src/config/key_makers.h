#pragma once
// Makers of keys: each binds one key to one field, given as a function from section to field.

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "k3pod/base/text.h"
#include "keys.h"
#include "values.h"

namespace k3pod {

inline std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

// The value as a message shows it.
inline std::string shown(const KeyValue& value) {
    const bool is_text = value.type == KeyValue::Type::kString;
    return is_text ? quoted(shortened(value.text)) : value.text;
}

inline Status wrong_type(const KeyValue& value, const char* expected) {
    return invalid_argument(fmt::format("{} is not {}", shown(value), expected));
}

// A name, or a path.
template <class Section, class Field>
Key<Section> text_key(std::string name, Field field, bool required = false) {
    return {std::move(name), required,
            [field, required](const KeyValue& v, Section& s) -> Status {
                if (v.type != KeyValue::Type::kString) return wrong_type(v, "a string");
                if (v.text.empty()) {
                    return invalid_argument(required
                                                ? "must not be empty"
                                                : "must not be empty; leave the key out instead");
                }
                K3POD_TRY(check_text(v.text));
                field(s) = v.text;
                return Status::ok();
            },
            [field](const Section& s) {
                const std::string text = field(const_cast<Section&>(s));
                return text.empty() ? std::string() : quoted(text);
            }};
}

// A text that `check` has the last word on.
template <class Section, class Field, class Check>
Key<Section> checked_key(std::string name, Field field, Check check, bool required = false) {
    Key<Section> key = text_key<Section>(std::move(name), field, required);
    key.read = [read = key.read, check](const KeyValue& v, Section& s) -> Status {
        K3POD_TRY(read(v, s));
        return check(v.text);
    };
    return key;
}

// Whether 0 is legal below the least value, with a meaning of its own ("never", "the model's own").
enum class Zero { kIsTooSmall, kIsSpecial };

template <class Section, class Field>
Key<Section> integer_key(std::string name, Field field, int64_t low, int64_t high,
                         bool required = false, Zero zero = Zero::kIsTooSmall) {
    return {
        std::move(name), required,
        [field, low, high, zero](const KeyValue& v, Section& s) -> Status {
            if (v.type != KeyValue::Type::kInteger) return wrong_type(v, "a whole number");
            const bool is_special = zero == Zero::kIsSpecial && v.integer == 0;
            if (!is_special && (v.integer < low || v.integer > high)) {
                return invalid_argument(
                    fmt::format("{} is outside {} to {}{}", v.integer, low, high,
                                zero == Zero::kIsSpecial ? " (0 is allowed, too)" : ""));
            }
            using Value = std::remove_reference_t<decltype(field(s))>;
            field(s) = static_cast<Value>(v.integer);
            return Status::ok();
        },
        [field](const Section& s) { return fmt::format("{}", field(const_cast<Section&>(s))); }};
}

template <class E>
using Choices = std::vector<std::pair<std::string, E>>;

template <class Section, class E, class Field>
Key<Section> choice_key(std::string name, Field field, Choices<E> choices) {
    return {std::move(name), false,
            [field, choices](const KeyValue& v, Section& s) -> Status {
                std::string all;
                for (const auto& [word, value] : choices) {
                    if (v.type == KeyValue::Type::kString && v.text == word) {
                        field(s) = value;
                        return Status::ok();
                    }
                    all += (all.empty() ? "" : ", ") + quoted(word);
                }
                return invalid_argument(fmt::format("{} is not one of {}", shown(v), all));
            },
            [field, choices](const Section& s) {
                for (const auto& [word, value] : choices) {
                    if (field(const_cast<Section&>(s)) == value) return quoted(word);
                }
                return std::string();
            }};
}

}  // namespace k3pod

// The field of a section as such a function.
#define K3POD_FIELD(section, expr) \
    [](section & c) -> auto& {     \
        return c.expr;             \
    }

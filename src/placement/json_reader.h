#pragma once
// Reading JSON documents of one object strictly: every field known, there, once and of its type.

#include <fmt/format.h>
#include <simdjson.h>

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "k3pod/base/status.h"

namespace k3pod {

using JsonValue = simdjson::dom::element;
using JsonFields = std::map<std::string_view, JsonValue>;

// "found <value, shortened>, expected <expected>"
Status unexpected(JsonValue found, std::string_view expected);

// Every required field once, each optional one at most once, and no other. Borrows the document.
Result<JsonFields> split_fields(JsonValue document, std::span<const std::string_view> required,
                                std::string_view optional = {});

template <class T>
Status read_integer(JsonValue value, T& out) {
    constexpr int64_t kMax = std::numeric_limits<T>::max();
    int64_t number = 0;
    if (value.get(number) || number < 0 || number > kMax) {
        return unexpected(value, fmt::format("an integer from 0 to {}", kMax));
    }
    out = static_cast<T>(number);
    return Status::ok();
}

template <class T>
Status read_integer(const JsonFields& fields, std::string_view key, T& out) {
    return read_integer(fields.at(key), out).with_context(key);
}

// The value of `json`, or where it stops being JSON. Borrowed from the parser.
Result<JsonValue> parse_json(std::string_view json, simdjson::dom::parser& parser);

// Field "format" says `format`.
Status check_format(const JsonFields& fields, std::string_view format);

}  // namespace k3pod

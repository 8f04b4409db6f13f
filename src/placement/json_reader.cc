#include "json_reader.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "k3pod/base/not_json.h"

namespace k3pod {
namespace {

std::string printed(JsonValue value) {
    constexpr size_t kMaxChars = 60;
    std::string text = simdjson::minify(value);
    if (text.size() <= kMaxChars) return text;
    size_t cut = kMaxChars;
    while ((static_cast<unsigned char>(text[cut]) & 0xc0u) == 0x80u) --cut;  // whole characters
    return text.substr(0, cut) + "...";
}

}  // namespace

Status unexpected(JsonValue found, std::string_view expected) {
    return invalid_argument(fmt::format("found {}, expected {}", printed(found), expected));
}

Result<JsonFields> split_fields(JsonValue document, std::span<const std::string_view> required,
                                std::string_view optional) {
    simdjson::dom::object object;
    if (document.get(object)) return unexpected(document, "an object");
    JsonFields fields;
    for (const auto member : object) {
        const bool is_required =
            std::find(required.begin(), required.end(), member.key) != required.end();
        if (!is_required && (optional.empty() || member.key != optional)) {
            return invalid_argument(fmt::format("unknown field \"{}\", expected one of {}{}{}",
                                                member.key.substr(0, 60), fmt::join(required, ", "),
                                                optional.empty() ? "" : ", ", optional));
        }
        if (!fields.emplace(member.key, member.value).second) {
            return invalid_argument(fmt::format("field {} is there twice", member.key));
        }
    }
    for (const std::string_view key : required) {
        if (fields.count(key) != 0) continue;
        return invalid_argument(fmt::format("field {} is missing", key));
    }
    return fields;
}

Result<JsonValue> parse_json(std::string_view json, simdjson::dom::parser& parser) {
    JsonValue document;
    if (const auto error = parser.parse(json.data(), json.size()).get(document)) {
        return invalid_argument(not_json(json, simdjson::error_message(error)));
    }
    return document;
}

Status check_format(const JsonFields& fields, std::string_view format) {
    std::string_view found;
    if (!fields.at("format").get(found) && found == format) return Status::ok();
    return unexpected(fields.at("format"), fmt::format("\"{}\"", format)).with_context("format");
}

}  // namespace k3pod

#include "config_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3pod {
namespace {

using simdjson::dom::element;
using IntegerRange = ConfigFields::IntegerRange;

std::string describe(IntegerRange range) {
    std::string text = fmt::format("an integer from {} to {}", range.min, range.max);
    if (range.multiple > 1) text += fmt::format(", a multiple of {}", range.multiple);
    return text;
}

bool is_in(int64_t value, IntegerRange range) {
    return value >= range.min && value <= range.max && value % range.multiple == 0;
}

// A JSON value as a message shows it: minified and cut to a readable length.
std::string printed(element value) {
    constexpr size_t kMaxChars = 60;
    std::string text = simdjson::minify(value);
    if (text.size() <= kMaxChars) return text;
    size_t cut = kMaxChars;
    // Never cut inside a UTF-8 character: messages end up in JSON themselves.
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0u) == 0x80u) --cut;
    return text.substr(0, cut) + "...";
}

}  // namespace

ConfigFields::ConfigFields(std::string path, Status& status)
    : path_(std::move(path)), status_(status) {}

ConfigFields::ConfigFields(element object, std::string path, Status& status)
    : path_(std::move(path)), status_(status) {
    simdjson::dom::object members;
    if (object.get(members) != simdjson::SUCCESS) {
        record(path_.empty() ? "the file" : path_, printed(object), "an object");
        return;
    }
    for (const auto member : members) fields_.push_back({member.key, member.value});
    const auto by_key = [](const Field& a, const Field& b) { return a.key < b.key; };
    std::sort(fields_.begin(), fields_.end(), by_key);
    const auto twice =
        std::adjacent_find(fields_.begin(), fields_.end(),
                           [](const Field& a, const Field& b) { return a.key == b.key; });
    if (twice != fields_.end()) refuse(twice->key, "the field once, it is there twice");
}

const element* ConfigFields::find(std::string_view key) const {
    const auto at = std::lower_bound(fields_.begin(), fields_.end(), key,
                                     [](const Field& f, std::string_view k) { return f.key < k; });
    return at != fields_.end() && at->key == key ? &at->value : nullptr;
}

std::string ConfigFields::name_of(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void ConfigFields::refuse(std::string_view key, std::string_view expected) {
    const element* value = find(key);
    record(name_of(key), value ? printed(*value) : "nothing", expected);
}

void ConfigFields::refuse_item(std::string_view key, size_t item_idx, element item,
                               std::string_view expected) {
    record(fmt::format("{}[{}]", name_of(key), item_idx), printed(item), expected);
}

void ConfigFields::record(std::string_view name, std::string_view found,
                          std::string_view expected) {
    if (!status_) return;
    status_ = invalid_argument(fmt::format("{}: found {}, expected {}", name, found, expected));
}

const element* ConfigFields::require(std::string_view key, std::string_view expected) {
    const element* value = find(key);
    if (value == nullptr) refuse(key, expected);
    return value;
}

bool ConfigFields::has(std::string_view key) const {
    const element* value = find(key);
    return value != nullptr && !value->is_null();
}

int32_t ConfigFields::integer(std::string_view key, IntegerRange range) {
    const element* value = require(key, describe(range));
    int64_t found = 0;
    if (value == nullptr) return 0;
    if (value->get(found) != simdjson::SUCCESS || !is_in(found, range)) {
        refuse(key, describe(range));
        return 0;
    }
    return static_cast<int32_t>(found);
}

float ConfigFields::number(std::string_view key, NumberRange range) {
    const std::string expected = fmt::format("a number from {} to {}", range.min, range.max);
    const element* value = require(key, expected);
    double found = 0;
    if (value == nullptr) return 0;
    if (value->get(found) != simdjson::SUCCESS || !(found >= range.min && found <= range.max)) {
        refuse(key, expected);
        return 0;
    }
    return static_cast<float>(found);
}

std::string_view ConfigFields::text(std::string_view key) {
    const element* value = require(key, "a string");
    std::string_view found;
    if (value != nullptr && value->get(found) != simdjson::SUCCESS) refuse(key, "a string");
    return found;
}

std::vector<std::string> ConfigFields::texts(std::string_view key) {
    std::vector<std::string> out;
    for (const element item : list(key, "a list of strings")) {
        std::string_view text;
        if (item.get(text) != simdjson::SUCCESS || text.empty()) {
            refuse_item(key, out.size(), item, "a string that is not empty");
        }
        out.emplace_back(text);
    }
    return out;
}

std::vector<int32_t> ConfigFields::integers(std::string_view key, IntegerRange range) {
    std::vector<int32_t> out;
    for (const element item : list(key, "a list of integers")) {
        int64_t found = 0;
        if (item.get(found) != simdjson::SUCCESS || !is_in(found, range)) {
            refuse_item(key, out.size(), item, describe(range));
            return {};
        }
        out.push_back(static_cast<int32_t>(found));
    }
    return out;
}

std::vector<element> ConfigFields::list(std::string_view key, std::string_view expected) {
    const element* value = require(key, expected);
    simdjson::dom::array array;
    if (value == nullptr || !status_) return {};
    if (value->get(array) != simdjson::SUCCESS) {
        refuse(key, expected);
        return {};
    }
    return {array.begin(), array.end()};
}

ConfigFields ConfigFields::object(std::string_view key) {
    const element* value = require(key, "an object");
    return value ? ConfigFields(*value, name_of(key), status_)
                 : ConfigFields(name_of(key), status_);
}

std::vector<ConfigFields::Member> ConfigFields::members(std::string_view key) {
    std::vector<Member> out;
    const element* value = require(key, "an object");
    simdjson::dom::object object;
    if (value == nullptr) return out;
    if (value->get(object) != simdjson::SUCCESS) {
        refuse(key, "an object");
        return out;
    }
    for (const auto member : object) {
        std::string path = fmt::format("{}.{}", name_of(key), member.key);
        out.push_back({member.key, ConfigFields(member.value, std::move(path), status_)});
    }
    return out;
}

void ConfigFields::require_text(std::string_view key, std::string_view supported) {
    const std::string expected = fmt::format("\"{}\"", supported);
    const element* value = require(key, expected);
    std::string_view found;
    if (value == nullptr) return;
    if (value->get(found) != simdjson::SUCCESS || found != supported) refuse(key, expected);
}

void ConfigFields::require_integer(std::string_view key, int64_t supported) {
    const std::string expected = std::to_string(supported);
    const element* value = require(key, expected);
    int64_t found = 0;
    if (value == nullptr) return;
    if (value->get(found) != simdjson::SUCCESS || found != supported) refuse(key, expected);
}

void ConfigFields::require_bool(std::string_view key, bool supported) {
    const std::string_view expected = supported ? "true" : "false";
    const element* value = require(key, expected);
    bool found = false;
    if (value == nullptr) return;
    if (value->get(found) != simdjson::SUCCESS || found != supported) refuse(key, expected);
}

void ConfigFields::require_absent(std::string_view key) {
    if (has(key)) refuse(key, "null or no such field");
}

}  // namespace k3pod

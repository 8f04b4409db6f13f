#include "json_fields.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <charconv>
#include <cmath>

#include "k3pod/base/text.h"

namespace k3pod {
namespace {

// Far above any real object; keeps an object of millions of members from taking memory for each.
constexpr size_t kMaxMembers = 4096;

std::optional<double> parse_double(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error != std::errc() || end != text.end() || !std::isfinite(value)) return std::nullopt;
    return value;
}

std::optional<int64_t> parse_integer(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error == std::errc() && end == text.end()) return value;
    constexpr double kExact = 9007199254740992;  // 2^53
    const std::optional<double> real = parse_double(text);
    if (!real || std::abs(*real) > kExact || *real != std::floor(*real)) return std::nullopt;
    return static_cast<int64_t>(*real);
}

}  // namespace

// ---- one value ----

JsonKind JsonValue::kind() const {
    return JsonReader(source_).peek().value_or(JsonKind::kNull);
}

void JsonValue::refuse(std::string_view what) const {
    refusal_->refuse({.message = fmt::format("{}: {}", path_, what), .param = path_});
}

void JsonValue::refuse_unless(bool is_right, std::string_view expected) const {
    if (!is_right) refuse(fmt::format("expected {}, found {}", expected, excerpt(source_)));
}

bool JsonValue::boolean() const {
    refuse_unless(kind() == JsonKind::kBoolean, "true or false");
    return source_ == "true";
}

int64_t JsonValue::integer(int64_t min, int64_t max) const {
    const std::optional<int64_t> value =
        kind() == JsonKind::kNumber ? parse_integer(source_) : std::nullopt;
    const bool is_right = value && *value >= min && *value <= max;
    if (!is_right) refuse_unless(false, fmt::format("an integer from {} to {}", min, max));
    return is_right ? *value : min;
}

float JsonValue::number(const NumberRange& range) const {
    const std::optional<double> value =
        kind() == JsonKind::kNumber ? parse_double(source_) : std::nullopt;
    const bool is_right = value && *value <= range.max &&
                          (range.is_min_excluded ? *value > range.min : *value >= range.min);
    if (!is_right) {
        refuse_unless(
            false, fmt::format("a number {} {} {} {}", range.is_min_excluded ? "above" : "from",
                               range.min, range.is_min_excluded ? "and up to" : "to", range.max));
    }
    if (!is_right) return static_cast<float>(range.max);
    const auto rounded = static_cast<float>(*value);
    // A positive number that fp32 has no room for is the least positive one, not 0.
    const bool is_lost = range.is_min_excluded && rounded <= static_cast<float>(range.min);
    return is_lost ? std::nextafter(rounded, INFINITY) : rounded;
}

std::string JsonValue::text() const {
    std::string decoded;
    const bool is_text = kind() == JsonKind::kString;
    refuse_unless(is_text, "a string");
    if (is_text) JsonReader(source_).read_string(decoded);
    return decoded;
}

std::vector<int32_t> JsonValue::ids(int32_t vocab) const {
    std::vector<int32_t> ids;
    if (kind() != JsonKind::kArray) {
        refuse_unless(false, "an array of token ids");
        return ids;
    }
    JsonReader in(source_);
    std::string_view item;
    in.begin_array();
    while (in.next_item() && in.read_value(item)) {
        const std::optional<int64_t> id = parse_integer(item);
        if (!id || *id < 0 || *id >= vocab) {
            refuse(fmt::format("expected token ids from 0 to {}, found {} at index {}", vocab - 1,
                               excerpt(item), ids.size()));
            return {};
        }
        ids.push_back(static_cast<int32_t>(*id));
    }
    return ids;
}

size_t JsonValue::items(const std::function<void(const JsonValue&)>& visit) const {
    if (kind() != JsonKind::kArray) {
        refuse_unless(false, "an array");
        return 0;
    }
    JsonReader in(source_);
    std::string_view item;
    size_t count = 0;
    in.begin_array();
    while (!refusal_->is_refused() && in.next_item() && in.read_value(item)) {
        visit(JsonValue(item, fmt::format("{}[{}]", path_, count++), *refusal_));
    }
    return count;
}

// ---- an object ----

JsonFields::JsonFields(const JsonValue& object)
    : path_(object.path()), refusal_(&object.refusal()) {
    const bool is_object = object.kind() == JsonKind::kObject;
    object.refuse_unless(is_object, "an object");
    if (is_object) read(object.source());
}

JsonFields::JsonFields(std::string_view body, Refusal& refusal) : refusal_(&refusal) {
    body = without_bom(body);
    JsonReader whole(body);
    const auto kind = whole.peek();
    if (!simdjson::validate_utf8(body.data(), body.size())) {
        refusal.refuse({.message = "the body is not valid UTF-8"});
    } else if (kind && *kind != JsonKind::kObject) {
        refusal.refuse({.message = "the body is not a JSON object: it begins with " +
                                   excerpt(body.substr(0, 20))});
    } else {
        read(body);
    }
}

void JsonFields::read(std::string_view source) {
    JsonReader in(source);
    std::string name;
    std::string_view value;
    in.begin_object();
    while (in.next_member(name) && in.read_value(value)) {
        members_.emplace_back(name, value);
        if (members_.size() <= kMaxMembers) continue;
        return refusal_->refuse(
            {.message = fmt::format("{}: has more than {} members",
                                    path_.empty() ? "the body" : path_, kMaxMembers),
             .param = path_});
    }
    if (in.finish()) return;
    members_.clear();
    refusal_->refuse({.message = "the body is not valid JSON: " + in.status().message()});
}

std::string JsonFields::path_of(std::string_view name) const {
    return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

std::optional<JsonValue> JsonFields::find(std::string_view name) const {
    for (auto it = members_.rbegin(); it != members_.rend(); ++it) {
        if (it->first != name) continue;
        if (it->second == "null") return std::nullopt;
        return JsonValue(it->second, path_of(name), *refusal_);
    }
    return std::nullopt;
}

bool JsonFields::is_null(std::string_view name) const {
    for (auto it = members_.rbegin(); it != members_.rend(); ++it) {
        if (it->first == name) return it->second == "null";
    }
    return false;
}

bool JsonFields::boolean(std::string_view name, bool fallback) const {
    const auto value = find(name);
    return value ? value->boolean() : fallback;
}

int64_t JsonFields::integer(std::string_view name, int64_t fallback, int64_t min,
                            int64_t max) const {
    const auto value = find(name);
    return value ? value->integer(min, max) : fallback;
}

float JsonFields::number(std::string_view name, float fallback, const NumberRange& range) const {
    const auto value = find(name);
    return value ? value->number(range) : fallback;
}

std::string JsonFields::text(std::string_view name) const {
    const auto value = find(name);
    return value ? value->text() : std::string();
}

std::optional<JsonValue> JsonFields::required(std::string_view name) const {
    auto value = find(name);
    if (!value) {
        refusal_->refuse({.message = path_of(name) + ": is missing", .param = path_of(name)});
    }
    return value;
}

void JsonFields::refuse_if_present(std::string_view name, std::string_view reason) const {
    if (const auto value = find(name)) value->refuse(reason);
}

void JsonFields::for_each(
    const std::function<void(const std::string&, const JsonValue&)>& visit) const {
    for (const auto& [name, source] : members_) {
        if (refusal_->is_refused()) return;
        visit(name, JsonValue(source, path_of(name), *refusal_));
    }
}

}  // namespace k3pod

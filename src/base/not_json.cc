#include "k3pod/base/not_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace k3pod {
namespace {

// Empty when it is JSON.
std::string place_of_error(std::string_view text) {
    using Json = nlohmann::json;
    // Nothing is kept, so that the second reading takes no memory.
    const auto keep_nothing = [](int, Json::parse_event_t, Json&) { return false; };
    try {
        [[maybe_unused]] const Json nothing = Json::parse(text, keep_nothing);
        return {};
    } catch (const Json::parse_error& error) {
        const size_t at = std::min(text.size(), std::max<size_t>(error.byte, 1) - 1);
        const std::string_view before = text.substr(0, at);
        const auto line = 1 + std::count(before.begin(), before.end(), '\n');
        const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
        return fmt::format("line {}, column {}", line, at - line_begin + 1);
    } catch (const Json::exception&) {
        return {};  // JSON, but a number is too large
    }
}

}  // namespace

std::string not_json(std::string_view text, std::string_view why) {
    const std::string place = place_of_error(text);
    return fmt::format("not valid JSON{}{}: {}", place.empty() ? "" : " at ", place, why);
}

}  // namespace k3pod

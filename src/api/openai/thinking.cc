#include "thinking.h"

#include <array>
#include <utility>

namespace k3pod {
namespace {

// What one source says; unset fields leave it to the next weaker source.
struct Wish {
    std::optional<bool> is_on{};
    std::optional<std::string> effort{};
};

// The vocabulary of reasoning_effort; "none" gives an empty effort and thinking off.
Wish read_common_effort(const JsonValue& value) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kEfforts{{
        {"none", ""},
        {"minimal", "low"},
        {"low", "low"},
        {"medium", "high"},
        {"high", "high"},
        {"xhigh", "max"},
        {"max", "max"},
    }};
    const std::string word = value.text();
    for (const auto& [name, effort] : kEfforts) {
        if (word != name) continue;
        if (effort.empty()) return {.is_on = false};
        return {.effort = std::string(effort)};
    }
    value.refuse_unless(false, "none, minimal, low, medium, high, xhigh or max");
    return {};
}

Wish read_template_arguments(const JsonFields& request) {
    const auto value = request.find("chat_template_kwargs");
    if (!value) return {};
    const JsonFields arguments(*value);
    Wish wish;
    for (const char* name : {"enable_thinking", "thinking"}) {
        if (const auto flag = arguments.find(name)) wish.is_on = flag->boolean();
    }
    // History keeps its thinking in any case; the flag is checked and has no further effect.
    arguments.boolean("preserve_thinking", true);
    if (const auto effort = arguments.find("thinking_effort")) {
        wish.effort = effort->text();
        effort->refuse_unless(wish.effort == "low" || wish.effort == "high" || wish.effort == "max",
                              "low, high or max");
    } else if (arguments.is_null("thinking_effort")) {
        wish.effort = "";
    }
    return wish;
}

Wish read_thinking_object(const JsonFields& request) {
    const auto value = request.find("thinking");
    if (!value) return {};
    const JsonFields thinking(*value);
    Wish wish;
    if (const auto effort = thinking.find("effort")) wish = read_common_effort(*effort);
    if (const auto type = thinking.find("type")) {
        const std::string word = type->text();
        type->refuse_unless(word == "enabled" || word == "disabled", "enabled or disabled");
        wish.is_on = word == "enabled";
    }
    thinking.text("keep");
    return wish;
}

}  // namespace

Thinking read_thinking(const JsonFields& request) {
    Wish common;
    if (const auto effort = request.find("reasoning_effort")) common = read_common_effort(*effort);
    Thinking thinking;
    // From the weakest to the strongest.
    for (const Wish& wish :
         {common, read_thinking_object(request), read_template_arguments(request)}) {
        if (wish.is_on) thinking.is_on = *wish.is_on;
        if (wish.effort) thinking.effort = *wish.effort;
    }
    return thinking;
}

}  // namespace k3pod

#pragma once
// Whether to think, and how hard: one meaning for the four ways in which clients say it.

#include <string>

#include "api/openai/json_fields.h"

namespace k3pod {

struct Thinking {
    bool is_on = true;
    std::string effort = "max";  // "low", "high", "max"; empty: the prompt does not speak of effort
};

// The stronger source wins, for on/off and for effort each:
//   chat_template_kwargs.{thinking | enable_thinking, thinking_effort}
//   thinking.{type, effort}
//   reasoning_effort
// Other vendors' efforts map to the nearest of K3's three; "none" turns thinking off.
Thinking read_thinking(const JsonFields& request);

}  // namespace k3pod

#pragma once
// The body of POST /v1/chat/completions, read and checked. A pure function: bytes in, request or
// refusal out.

#include <string_view>
#include <variant>

#include "api/error_body.h"
#include "api/openai/request_params.h"
#include "k3pod/api/chat.h"

namespace k3pod {

struct ChatRequest {
    RequestParams params;
    ChatPrompt prompt;
    bool include_reasoning = true;
    int32_t num_earlier_calls = 0;  // tool calls in the history: new ids count on from there
};

std::variant<ChatRequest, ApiError> parse_chat_request(std::string_view body,
                                                       const RequestRules& rules);

// The part that POST /tokenize takes as well: messages, tools, tool_choice, thinking,
// response_format.
ChatPrompt read_chat_prompt(const JsonFields& fields);

}  // namespace k3pod

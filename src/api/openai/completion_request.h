#pragma once
// The body of POST /v1/completions, read and checked.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/error_body.h"
#include "api/openai/request_params.h"

namespace k3pod {

// One prompt: text, or the ids themselves.
using TextPrompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
    RequestParams params;
    std::vector<TextPrompt> prompts;  // at least one
    bool skip_special_tokens = true;
};

std::variant<CompletionRequest, ApiError> parse_completion_request(std::string_view body,
                                                                   const RequestRules& rules);

}  // namespace k3pod

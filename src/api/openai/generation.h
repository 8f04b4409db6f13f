#pragma once
// POST /v1/chat/completions and /v1/completions: from the body to a running Answer.

#include <memory>

#include "api/openai/answer.h"
#include "api/openai/api_context.h"

namespace k3pod {

// Both answer at once, or later through the engine. They give the Answer if it is a stream that has
// to be kept alive; else null.
std::shared_ptr<Answer> answer_chat(const ApiContext& context, const HttpRequest& request,
                                    std::shared_ptr<HttpReply> reply);
std::shared_ptr<Answer> answer_completion(const ApiContext& context, const HttpRequest& request,
                                          std::shared_ptr<HttpReply> reply);

}  // namespace k3pod

#pragma once
// "messages" of a chat request.

#include <vector>

#include "api/openai/json_fields.h"
#include "k3pod/api/chat.h"

namespace k3pod {

std::vector<ChatMessage> read_messages(const JsonFields& request);

}  // namespace k3pod

#pragma once
// Which call a tool message answers, and in which order a run of them is shown to the model.

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "k3pod/api/chat.h"
#include "k3pod/base/status.h"

namespace k3pod {

struct ToolResult {
    const ChatMessage* message;
    std::string_view tool;  // Name of the function.
    int32_t index;          // From 1.
};

// Follows a conversation. Borrows its messages.
class ToolResults {
  public:
    // The calls that the next results answer: those of the last assistant message.
    void expect(std::span<const ChatToolCall> calls);
    // Names and orders messages [begin, end), all of role tool. A tool_call_id decides name and
    // index. Without a match the name is the message's, else that of the call at this position, and
    // the index counts results since the assistant message. The run is sorted into the order of the
    // calls if every id matches. kInvalidArgument names the message that names no tool.
    Result<std::vector<ToolResult>> place(std::span<const ChatMessage> messages, size_t begin,
                                          size_t end);

  private:
    const ChatToolCall* find(std::string_view id) const;

    std::span<const ChatToolCall> calls_;
    std::unordered_map<std::string_view, const ChatToolCall*> call_of_id_;
    int32_t num_results_ = 0;
};

}  // namespace k3pod

#include "api/chat/tool_results.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3pod {

void ToolResults::expect(std::span<const ChatToolCall> calls) {
    calls_ = calls;
    num_results_ = 0;
    call_of_id_.clear();
    for (const ChatToolCall& call : calls) {
        if (!call.id.empty())
            call_of_id_.emplace(call.id, &call);  // The first of equal ids counts.
    }
}

Result<std::vector<ToolResult>> ToolResults::place(std::span<const ChatMessage> messages,
                                                   size_t begin, size_t end) {
    std::vector<ToolResult> results;
    bool all_match = true;
    for (size_t i = begin; i < end; ++i) {
        const ChatMessage& message = messages[i];
        const auto position = static_cast<size_t>(num_results_++);
        if (const ChatToolCall* call = find(message.tool_call_id)) {
            const auto index = static_cast<int32_t>(call - calls_.data()) + 1;
            results.push_back({&message, call->name, index});
            continue;
        }
        all_match = false;
        std::string_view tool = message.name;
        if (tool.empty() && position < calls_.size()) tool = calls_[position].name;
        if (tool.empty()) {
            return invalid_argument(fmt::format(
                "messages[{}]: the tool result names no tool: tool_call_id \"{:.40}\" is none of "
                "the "
                "{} calls of the assistant message before; send a call's id, or the tool's name",
                i, message.tool_call_id, calls_.size()));
        }
        results.push_back({&message, tool, num_results_});
    }
    if (all_match) {
        std::stable_sort(
            results.begin(), results.end(),
            [](const ToolResult& a, const ToolResult& b) { return a.index < b.index; });
    }
    return results;
}

const ChatToolCall* ToolResults::find(std::string_view id) const {
    const auto at = call_of_id_.find(id);
    return at == call_of_id_.end() ? nullptr : at->second;
}

}  // namespace k3pod

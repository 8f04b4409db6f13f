#include <fmt/format.h>

#include "api/chat/call_arguments.h"
#include "api/chat/canonical_json.h"
#include "api/chat/declared_tools.h"
#include "api/chat/segment_writer.h"
#include "api/chat/tool_results.h"
#include "k3pod/api/chat.h"

namespace k3pod {
namespace {

// `wording` with the placeholder's first occurrence replaced.
std::string filled(std::string_view wording, std::string_view placeholder, std::string_view value) {
    std::string text(wording);
    if (const size_t at = text.find(placeholder); at != std::string::npos) {
        text.replace(at, placeholder.size(), value);
    }
    return text;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n\v\f";
    const size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string message_name(size_t message_idx) {
    return fmt::format("messages[{}]", message_idx);
}

class ChatRenderer {
  public:
    ChatRenderer(const ChatPrompt& prompt, const ChatWording& wording, const Tokenizer& tokenizer,
                 std::vector<int32_t>& ids)
        : prompt_(prompt), wording_(wording), out_(tokenizer, ids) {}

    Status render() {
        K3POD_TRY(declare_tools());
        K3POD_TRY(set_effort());
        K3POD_TRY(conversation());
        choose_tools();
        K3POD_TRY(set_response_format());
        open_answer();
        return Status::ok();
    }

  private:
    // ---- what the format adds ----

    void internal_message(std::string_view type, std::string_view content) {
        out_.open("message", {{"role", "system"}, {"type", type}});
        out_.text(content);
        out_.end_message();
    }

    Status declare_tools() {
        if (prompt_.tools_json.empty()) return Status::ok();
        K3POD_ASSIGN(const std::string tools, tools_.declare(prompt_.tools_json));
        if (tools != "[]") {
            internal_message("tool-declare", filled(wording_.tool_declare, "{tools}", tools));
        }
        return Status::ok();
    }

    Status set_effort() {
        const std::string& effort = prompt_.effort;
        if (effort.empty()) return Status::ok();
        if (effort != "low" && effort != "high" && effort != "max") {
            return invalid_argument(fmt::format(
                "thinking_effort is \"{:.40}\"; the model knows low, high and max", effort));
        }
        if (!prompt_.thinking) return Status::ok();
        internal_message("thinking-effort",
                         trimmed(filled(wording_.thinking_effort, "{effort}", effort)));
        return Status::ok();
    }

    void choose_tools() {
        if (prompt_.tool_choice == ToolChoice::kRequired) {
            internal_message("tool-choice", trimmed(wording_.tool_choice_required));
        } else if (prompt_.tool_choice == ToolChoice::kNone) {
            internal_message("tool-choice", trimmed(wording_.tool_choice_none));
        }
    }

    Status set_response_format() {
        if (!prompt_.json_schema.empty()) {
            auto schema = canonical_json(prompt_.json_schema);
            if (!schema) return schema.status().with_context("response_format.json_schema.schema");
            const std::string text =
                filled(wording_.response_format_json_schema, "{schema}", *schema);
            internal_message("response-format", trimmed(text));
        } else if (prompt_.json_object) {
            internal_message("response-format", trimmed(wording_.response_format_json_object));
        }
        return Status::ok();
    }

    void open_answer() {
        out_.open("message", {{"role", "assistant"}});
        out_.open(prompt_.thinking ? "think" : "response");
    }

    // ---- the conversation ----

    Status conversation() {
        const auto& messages = prompt_.messages;
        if (messages.empty()) return invalid_argument("messages is empty; send at least one");
        for (size_t i = 0; i < messages.size();) {
            size_t end = i + 1;
            switch (messages[i].role) {
                case ChatRole::kSystem:
                    K3POD_TRY(system_message(i));
                    break;
                case ChatRole::kUser:
                    plain_message("user", messages[i]);
                    break;
                case ChatRole::kAssistant:
                    K3POD_TRY(assistant_message(i));
                    break;
                case ChatRole::kTool:
                    while (end < messages.size() && messages[end].role == ChatRole::kTool) ++end;
                    K3POD_TRY(tool_messages(i, end));
                    break;
            }
            i = end;
        }
        return Status::ok();
    }

    void plain_message(std::string_view role, const ChatMessage& message) {
        if (message.name.empty()) {
            out_.open("message", {{"role", role}});
        } else {
            out_.open("message", {{"role", role}, {"name", message.name}});
        }
        out_.text(message.content);
        out_.end_message();
    }

    Status system_message(size_t i) {
        const ChatMessage& message = prompt_.messages[i];
        if (message.tools_json.empty()) {
            plain_message("system", message);
            return Status::ok();
        }
        if (!message.content.empty()) {
            return invalid_argument(message_name(i) +
                                    ": a system message declares tools or has content, not both; "
                                    "send two messages");
        }
        auto tools = tools_.declare_dynamic(message.tools_json);
        if (!tools) return tools.status().with_context(message_name(i));
        internal_message("tool-declare", filled(wording_.tool_declare_dynamic, "{tools}", *tools));
        return Status::ok();
    }

    // Thinking on: every turn keeps its think element, even an empty one.
    Status assistant_message(size_t i) {
        const ChatMessage& message = prompt_.messages[i];
        out_.open("message", {{"role", "assistant"}});
        if (prompt_.thinking) out_.element("think", message.reasoning);
        out_.element("response", message.content);
        if (!message.tool_calls.empty()) {
            out_.open("tools");
            for (size_t k = 0; k < message.tool_calls.size(); ++k) K3POD_TRY(tool_call(i, k));
            out_.close("tools");
        }
        out_.end_message();
        results_.expect(message.tool_calls);
        return Status::ok();
    }

    Status tool_call(size_t message_idx, size_t call_idx) {
        const ChatToolCall& call = prompt_.messages[message_idx].tool_calls[call_idx];
        if (call.name.empty()) {
            return invalid_argument(fmt::format("{}.tool_calls[{}]: has no function name",
                                                message_name(message_idx), call_idx));
        }
        out_.open("call", {{"tool", call.name}, {"index", std::to_string(call_idx + 1)}});
        if (const auto arguments = split_arguments(call.arguments_json)) {
            for (const CallArgument& argument : *arguments) {
                out_.open("argument",
                          {{"key", argument.key}, {"type", json_kind_name(argument.kind)}});
                out_.text(argument.text);
                out_.close("argument");
            }
        } else {
            out_.open("json", {{"type", "object"}});
            out_.text(call.arguments_json);
            out_.close("json");
        }
        out_.close("call");
        return Status::ok();
    }

    Status tool_messages(size_t begin, size_t end) {
        K3POD_ASSIGN(const std::vector<ToolResult> results,
                     results_.place(prompt_.messages, begin, end));
        for (const ToolResult& result : results) {
            out_.open(
                "message",
                {{"role", "tool"}, {"tool", result.tool}, {"index", std::to_string(result.index)}});
            out_.text(result.message->content);
            out_.end_message();
        }
        return Status::ok();
    }

    const ChatPrompt& prompt_;
    const ChatWording& wording_;
    SegmentWriter out_;
    DeclaredTools tools_;
    ToolResults results_;
};

}  // namespace

Result<std::vector<int32_t>> render_chat(const ChatPrompt& prompt, const ChatWording& wording,
                                         const Tokenizer& tokenizer) {
    std::vector<int32_t> ids;
    K3POD_TRY(ChatRenderer(prompt, wording, tokenizer, ids).render());
    return ids;
}

}  // namespace k3pod

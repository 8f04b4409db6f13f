#include "chat_messages.h"

#include <optional>

namespace k3pod {
namespace {

ChatRole read_role(const JsonFields& message) {
    const auto value = message.required("role");
    if (!value) return ChatRole::kUser;
    const std::string role = value->text();
    if (role == "system" || role == "developer") return ChatRole::kSystem;
    if (role == "assistant") return ChatRole::kAssistant;
    if (role == "tool") return ChatRole::kTool;
    value->refuse_unless(role == "user", "system, developer, user, assistant or tool");
    return ChatRole::kUser;
}

// The text of one part of an array; parts of other kinds are refused.
std::string read_part(const JsonValue& value) {
    const JsonFields part(value);
    const auto type = part.required("type");
    if (!type) return {};
    const std::string kind = type->text();
    type->refuse_unless(kind == "text", "\"text\", the only kind of part that this server takes");
    const auto text = part.required("text");
    return text ? text->text() : std::string();
}

// A string, parts, or nothing at all.
std::string read_content(const JsonFields& message) {
    const auto value = message.find("content");
    if (!value) return {};
    if (value->kind() == JsonKind::kString) return value->text();
    if (value->kind() != JsonKind::kArray) {
        value->refuse_unless(false, "a string, null or an array of parts");
        return {};
    }
    std::string joined;
    bool is_first = true;
    value->items([&](const JsonValue& part) {
        if (!is_first) joined += '\n';
        is_first = false;
        joined += read_part(part);
    });
    return joined;
}

// Most clients send arguments as a string that holds JSON, some as the object itself.
std::string read_arguments(const JsonFields& function) {
    const auto value = function.find("arguments");
    if (!value) return "{}";
    if (value->kind() == JsonKind::kString) return value->text();
    value->refuse_unless(value->kind() == JsonKind::kObject, "a string or an object");
    return std::string(value->source());
}

ChatToolCall read_tool_call(const JsonValue& value) {
    ChatToolCall call;
    const JsonFields fields(value);
    call.id = fields.text("id");
    const auto function_value = fields.required("function");
    if (!function_value) return call;
    const JsonFields function(*function_value);
    if (const auto name = function.required("name")) {
        call.name = name->text();
        name->refuse_unless(!call.name.empty(), "the name of a function");
    }
    call.arguments_json = read_arguments(function);
    return call;
}

void read_assistant_fields(const JsonFields& fields, ChatMessage& message) {
    message.reasoning = fields.text("reasoning_content");
    if (!fields.has("reasoning_content")) message.reasoning = fields.text("reasoning");
    if (const auto calls = fields.find("tool_calls")) {
        calls->items(
            [&](const JsonValue& call) { message.tool_calls.push_back(read_tool_call(call)); });
    }
}

// Tools that a system message declares; the chat format checks them.
void read_declared_tools(const JsonFields& fields, ChatMessage& message) {
    const auto tools = fields.find("tools");
    if (!tools) return;
    if (message.role != ChatRole::kSystem) {
        return tools->refuse("only a system message may declare tools");
    }
    const size_t num_tools = tools->items([](const JsonValue&) {});
    if (num_tools > 0) message.tools_json = tools->source();
}

ChatMessage read_message(const JsonValue& value) {
    const JsonFields fields(value);
    ChatMessage message;
    message.role = read_role(fields);
    message.name = fields.text("name");
    message.content = read_content(fields);
    if (message.role == ChatRole::kAssistant) read_assistant_fields(fields, message);
    if (message.role == ChatRole::kTool) message.tool_call_id = fields.text("tool_call_id");
    read_declared_tools(fields, message);
    return message;
}

}  // namespace

std::vector<ChatMessage> read_messages(const JsonFields& request) {
    std::vector<ChatMessage> messages;
    const auto value = request.required("messages");
    if (!value) return messages;
    const size_t count =
        value->items([&](const JsonValue& item) { messages.push_back(read_message(item)); });
    value->refuse_unless(count > 0, "at least one message");
    return messages;
}

}  // namespace k3pod

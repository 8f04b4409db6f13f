#include "chat_request.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "api/openai/chat_messages.h"
#include "api/openai/thinking.h"

namespace k3pod {
namespace {

// Gives the function's name.
std::string check_tool(const JsonValue& value) {
    const JsonFields tool(value);
    if (const auto type = tool.required("type")) {
        type->refuse_unless(type->text() == "function", "\"function\"");
    }
    const auto function_value = tool.required("function");
    if (!function_value) return {};
    const JsonFields function(*function_value);
    function.text("description");
    if (const auto parameters = function.find("parameters")) JsonFields{*parameters};
    const auto name = function.required("name");
    if (!name) return {};
    const std::string text = name->text();
    name->refuse_unless(!text.empty() && text.size() <= 256, "a name of 1 to 256 bytes");
    return text;
}

std::set<std::string> read_tools(const JsonFields& fields, ChatPrompt& prompt) {
    std::set<std::string> names;
    const auto tools = fields.find("tools");
    if (!tools) return names;
    tools->items([&](const JsonValue& tool) {
        const std::string name = check_tool(tool);
        if (!names.insert(name).second) {
            tool.refuse(fmt::format("the tool {} is declared twice", excerpt(name)));
        }
    });
    if (!names.empty()) prompt.tools_json = tools->source();
    return names;
}

ToolChoice read_named_choice(const JsonValue& value, const std::set<std::string>& names) {
    const JsonFields choice(value);
    if (const auto type = choice.required("type")) {
        type->refuse_unless(type->text() == "function", "\"function\"");
    }
    const auto function = choice.required("function");
    if (!function) return ToolChoice::kAuto;
    const auto name = JsonFields(*function).required("name");
    if (name && names.count(name->text()) == 0)
        name->refuse_unless(false, "the name of one of the tools");
    // There is no grammar that could force one tool; the prompt can only ask for some call.
    return ToolChoice::kRequired;
}

ToolChoice read_tool_choice(const JsonFields& fields, const std::set<std::string>& names,
                            bool has_tools) {
    const auto value = fields.find("tool_choice");
    if (!value) return ToolChoice::kAuto;
    if (value->kind() == JsonKind::kObject) return read_named_choice(*value, names);
    const std::string word = value->kind() == JsonKind::kString ? value->text() : std::string();
    if (word == "auto") return ToolChoice::kAuto;
    // Without tools there is nothing that the prompt would have to rule out.
    if (word == "none") return has_tools ? ToolChoice::kNone : ToolChoice::kAuto;
    value->refuse_unless(word == "required", "auto, none, required or a function's name");
    if (!has_tools) value->refuse("\"required\" needs tools");
    return ToolChoice::kRequired;
}

void read_response_format(const JsonFields& fields, ChatPrompt& prompt) {
    const auto value = fields.find("response_format");
    if (!value) return;
    const JsonFields format(*value);
    const auto type = format.required("type");
    if (!type) return;
    const std::string kind = type->text();
    if (kind == "json_schema") {
        const auto wrapper = format.required("json_schema");
        if (!wrapper) return;
        const JsonFields description(*wrapper);
        description.text("name");
        description.boolean("strict", false);
        const auto schema = description.required("schema");
        if (!schema) return;
        JsonFields{*schema};
        prompt.json_schema = schema->source();
    } else {
        prompt.json_object = kind == "json_object";
        type->refuse_unless(prompt.json_object || kind == "text",
                            "text, json_object or json_schema");
    }
}

void read_logprobs(const JsonFields& fields, SamplingParams& sampling) {
    const bool wants_logprobs = fields.boolean("logprobs", false);
    const auto num_top = fields.integer("top_logprobs", 0, 0, kMaxLogprobs);
    if (wants_logprobs) {
        sampling.num_logprobs = static_cast<int32_t>(num_top);
    } else if (num_top > 0) {
        fields.refuse_if_present("top_logprobs", "needs \"logprobs\": true");
    }
}

// Fields that would change the answer in ways this server does not know.
void refuse_unsupported(const JsonFields& fields) {
    for (const char* name : {"functions", "function_call"}) {
        fields.refuse_if_present(name, "is not supported; use tools and tool_choice");
    }
    if (const auto value = fields.find("add_generation_prompt"); value && !value->boolean()) {
        value->refuse("only true is supported");
    }
    if (const auto value = fields.find("continue_final_message"); value && value->boolean()) {
        value->refuse("only false is supported");
    }
}

int32_t count_calls(const std::vector<ChatMessage>& messages) {
    size_t count = 0;
    for (const ChatMessage& message : messages) count += message.tool_calls.size();
    return static_cast<int32_t>(count);
}

}  // namespace

ChatPrompt read_chat_prompt(const JsonFields& fields) {
    ChatPrompt prompt;
    prompt.messages = read_messages(fields);
    bool has_tools = false;
    for (const ChatMessage& message : prompt.messages) has_tools |= !message.tools_json.empty();
    const std::set<std::string> names = read_tools(fields, prompt);
    has_tools |= !names.empty();
    prompt.tool_choice = read_tool_choice(fields, names, has_tools);
    fields.boolean("parallel_tool_calls", true);
    Thinking thinking = read_thinking(fields);
    prompt.thinking = thinking.is_on;
    prompt.effort = std::move(thinking.effort);
    read_response_format(fields, prompt);
    return prompt;
}

std::variant<ChatRequest, ApiError> parse_chat_request(std::string_view body,
                                                       const RequestRules& rules) {
    Refusal refusal;
    const JsonFields fields(body, refusal);
    if (refusal.is_refused()) return refusal.error();
    ChatRequest request;
    request.params = read_params(fields, rules);
    read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, 0, request.params);
    read_logprobs(fields, request.params.sampling);
    refuse_unsupported(fields);
    request.include_reasoning = fields.boolean("include_reasoning", true);
    request.prompt = read_chat_prompt(fields);
    request.num_earlier_calls = count_calls(request.prompt.messages);
    if (refusal.is_refused()) return refusal.error();
    return request;
}

}  // namespace k3pod

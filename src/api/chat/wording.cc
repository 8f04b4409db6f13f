#include <fmt/format.h>

#include "api/chat/json_text.h"
#include "k3pod/api/chat.h"
#include "k3pod/base/file.h"

namespace k3pod {
namespace {

struct WordingField {
    std::string_view key;
    std::string ChatWording::*text;
    std::string_view placeholder;  // Has to be in the text; empty: none.
    bool is_required = true;
};

constexpr WordingField kFields[] = {
    {"tool_declare", &ChatWording::tool_declare, "{tools}"},
    {"tool_declare_dynamic", &ChatWording::tool_declare_dynamic, "{tools}", false},
    {"thinking_effort", &ChatWording::thinking_effort, "{effort}"},
    {"tool_choice_required", &ChatWording::tool_choice_required, ""},
    {"tool_choice_none", &ChatWording::tool_choice_none, ""},
    {"response_format_json_object", &ChatWording::response_format_json_object, ""},
    {"response_format_json_schema", &ChatWording::response_format_json_schema, "{schema}"},
};

// The strings among the members of the object; other members are not for this version.
Status read_fields(std::string_view text, ChatWording& wording) {
    JsonReader in(text);
    std::string key;
    std::string_view ignored;
    in.begin_object();
    while (in.next_member(key)) {
        std::string* target = nullptr;
        for (const WordingField& field : kFields) {
            if (field.key == key) target = &(wording.*field.text);
        }
        if (target == nullptr) {
            in.read_value(ignored);
        } else {
            in.read_string(*target);
        }
    }
    return in.finish() ? Status::ok() : in.status();
}

Status check_fields(const ChatWording& wording) {
    for (const WordingField& field : kFields) {
        const std::string& text = wording.*field.text;
        if (text.empty()) {
            if (!field.is_required) continue;
            return invalid_argument(fmt::format("has no text \"{}\"", field.key));
        }
        if (text.find(field.placeholder) == std::string::npos) {
            return invalid_argument(
                fmt::format("\"{}\" is \"{:.60}\", which lacks the placeholder {}", field.key, text,
                            field.placeholder));
        }
    }
    return Status::ok();
}

}  // namespace

Result<ChatWording> read_chat_wording(const std::filesystem::path& dir) {
    const auto file = dir / "chat_format.json";
    const auto text = read_text_file(file);
    if (!text) {
        return Status(text.status().code(),
                      text.status().message() +
                          "; it holds the wording that the chat format adds and belongs beside "
                          "tiktoken.model");
    }
    ChatWording wording;
    Status status = read_fields(*text, wording);
    if (status) status = check_fields(wording);
    if (!status) return status.with_context(file.string());
    if (wording.tool_declare_dynamic.empty()) wording.tool_declare_dynamic = wording.tool_declare;
    return wording;
}

}  // namespace k3pod

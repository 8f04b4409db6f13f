#include "api/chat/answer_builder.h"

#include <algorithm>
#include <utility>

namespace k3pod {
namespace {

std::string to_utf8(std::string_view bytes) {
    Utf8Assembler assembler;
    std::string text = assembler.push(bytes);
    return text += assembler.finish();
}

}  // namespace

// ---- elements ----

void AnswerBuilder::open(const Tag& tag, Events& events) {
    switch (tag.element) {
        case Element::kUnknown:
            return;
        case Element::kMessage:
            return leave_all(events);
        case Element::kThink:
            if (place_ == Place::kThink) return;
            leave_all(events);
            // Clients have been told that reasoning is over, so a second thought is content.
            place_ = is_reasoning_over_ ? Place::kResponse : Place::kThink;
            return;
        case Element::kResponse:
            if (place_ == Place::kResponse) return;
            leave_all(events);
            place_ = Place::kResponse;
            return;
        case Element::kTools:
            leave_to_tools(events);
            return;
        case Element::kCall:
            leave_to_tools(events);
            return begin_call(tag, events);
        case Element::kArgument:
        case Element::kJson:
            if (place_ < Place::kCall) return;
            leave_to_call(events);
            return begin_argument(tag, events);
    }
}

void AnswerBuilder::close(Element element, Events& events) {
    switch (element) {
        case Element::kUnknown:
            return;
        case Element::kMessage:
            return leave_all(events);
        case Element::kThink:
            if (place_ == Place::kThink) leave_all(events);
            return;
        case Element::kResponse:
            if (place_ == Place::kResponse) leave_all(events);
            return;
        case Element::kTools:
            if (place_ >= Place::kTools) leave_all(events);
            return;
        case Element::kCall:
            if (place_ >= Place::kCall) leave_to_tools(events);
            return;
        case Element::kArgument:
        case Element::kJson:
            if (place_ == Place::kArgument) leave_to_call(events);
            return;
    }
}

void AnswerBuilder::begin_call(const Tag& tag, Events& events) {
    // Without a name there is nothing to call: what is inside falls away with it.
    const std::string name = to_utf8(tag.attribute("tool"));
    if (name.empty()) return;
    place_ = Place::kCall;
    arguments_ = {};
    events.push_back(ToolCallBegin{num_tool_calls_++, name});
}

void AnswerBuilder::begin_argument(const Tag& tag, Events& events) {
    place_ = Place::kArgument;
    if (tag.element == Element::kJson) return arguments_.begin_json();
    const std::string key = to_utf8(tag.attribute("key"));
    emit_arguments(arguments_.begin_argument(key, tag.attribute("type")), events);
}

void AnswerBuilder::leave_to_call(Events& events) {
    flush(events);
    if (place_ != Place::kArgument) return;
    emit_arguments(arguments_.end_argument(), events);
    place_ = Place::kCall;
}

void AnswerBuilder::leave_to_tools(Events& events) {
    if (place_ < Place::kTools) leave_all(events);
    leave_to_call(events);
    if (place_ == Place::kCall) {
        emit_arguments(arguments_.end_call(), events);
        events.push_back(ToolCallEnd{num_tool_calls_ - 1});
    }
    is_reasoning_over_ = true;
    place_ = Place::kTools;
}

void AnswerBuilder::leave_all(Events& events) {
    if (place_ >= Place::kTools) leave_to_tools(events);
    flush(events);
    if (place_ == Place::kThink) {
        events.push_back(ReasoningEnd{});
        is_reasoning_over_ = true;
    }
    place_ = Place::kMessage;
}

void AnswerBuilder::finish(Events& events) {
    if (place_ < Place::kTools) return leave_all(events);
    flush(events);
    if (place_ == Place::kArgument) emit_arguments(arguments_.cut(), events);
}

// ---- text ----

void AnswerBuilder::text(std::string_view bytes, Events& events) {
    emit_text(utf8_.push(bytes), events);
}

void AnswerBuilder::flush(Events& events) {
    emit_text(utf8_.finish(), events);
}

void AnswerBuilder::emit_text(std::string_view utf8, Events& events) {
    if (place_ == Place::kMessage) {
        utf8.remove_prefix(std::min(utf8.find_first_not_of(" \t\r\n"), utf8.size()));
        if (!utf8.empty()) place_ = Place::kResponse;
    }
    if (utf8.empty()) return;
    if (place_ == Place::kThink) {
        events.push_back(ReasoningDelta{std::string(utf8)});
    } else if (place_ == Place::kResponse) {
        is_reasoning_over_ = true;
        events.push_back(ContentDelta{std::string(utf8)});
    } else if (place_ == Place::kArgument) {
        emit_arguments(arguments_.text(utf8), events);
    }
}

void AnswerBuilder::emit_arguments(std::string json, Events& events) {
    if (json.empty()) return;
    events.push_back(ToolCallArguments{num_tool_calls_ - 1, std::move(json)});
}

}  // namespace k3pod

#include "api/chat/argument_writer.h"

#include <utility>

#include "api/chat/json_text.h"

namespace k3pod {
namespace {

bool is_json(std::string_view text) {
    JsonReader in(text);
    std::string_view ignored;
    return in.read_value(ignored) && in.finish();
}

std::string quoted_json(std::string_view text) {
    std::string json = "\"";
    append_json_escaped(text, json);
    return json += '"';
}

}  // namespace

std::string ArgumentWriter::begin_argument(std::string_view key, std::string_view type) {
    value_ = Value::kDropped;
    if (form_ == Form::kRaw) return {};
    std::string json = form_ == Form::kNothing ? "{" : ",";
    form_ = Form::kObject;
    json += quoted_json(key) + ":";
    if (type == "string" || type.empty()) {
        value_ = Value::kString;
        json += '"';
    } else {
        value_ = Value::kLiteral;
        literal_.clear();
    }
    return json;
}

void ArgumentWriter::begin_json() {
    value_ = form_ == Form::kNothing ? Value::kRaw : Value::kDropped;
}

std::string ArgumentWriter::text(std::string_view utf8) {
    std::string json;
    switch (value_) {
        case Value::kDropped:
            break;
        case Value::kString:
            append_json_escaped(utf8, json);
            break;
        case Value::kLiteral:
            literal_ += utf8;
            break;
        case Value::kRaw:
            form_ = Form::kRaw;
            json = utf8;
            break;
    }
    return json;
}

std::string ArgumentWriter::end_argument() {
    const Value ended = std::exchange(value_, Value::kDropped);
    if (ended == Value::kString) return "\"";
    if (ended == Value::kLiteral) return is_json(literal_) ? literal_ : quoted_json(literal_);
    return {};
}

std::string ArgumentWriter::end_call() {
    if (form_ == Form::kRaw) return {};
    return form_ == Form::kObject ? "}" : "{}";
}

std::string ArgumentWriter::cut() {
    return value_ == Value::kLiteral ? literal_ : std::string();
}

}  // namespace k3pod

#include "api/chat/segment_writer.h"

namespace k3pod {
namespace {

// `&` first, or the escapes of quotes would be escaped again.
std::string escaped(std::string_view value) {
    std::string text;
    for (const char c : value) {
        if (c == '&') {
            text += "&amp;";
        } else if (c == '"') {
            text += "&quot;";
        } else {
            text += c;
        }
    }
    return text;
}

}  // namespace

void SegmentWriter::open(std::string_view name, std::initializer_list<Attribute> attributes) {
    ids_.push_back(tokenizer_.markers().open);
    text(name);
    for (const Attribute& a : attributes) {
        text(std::string(" ").append(a.name));
        text("=\"");
        text(escaped(a.value));
        text("\"");
    }
    ids_.push_back(tokenizer_.markers().sep);
}

void SegmentWriter::close(std::string_view name) {
    ids_.push_back(tokenizer_.markers().close);
    text(name);
    ids_.push_back(tokenizer_.markers().sep);
}

void SegmentWriter::element(std::string_view name, std::string_view content) {
    open(name);
    text(content);
    close(name);
}

void SegmentWriter::end_message() {
    close("message");
    ids_.push_back(tokenizer_.markers().end_of_msg);
}

}  // namespace k3pod

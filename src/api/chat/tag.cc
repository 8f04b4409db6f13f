#include "api/chat/tag.h"

namespace k3pod {
namespace {

struct Name {
    std::string_view text;
    Element element;
    bool has_attributes;
};

// No name begins with another one.
constexpr Name kNames[] = {
    {"message", Element::kMessage, true},    {"think", Element::kThink, false},
    {"response", Element::kResponse, false}, {"tools", Element::kTools, false},
    {"call", Element::kCall, true},          {"argument", Element::kArgument, true},
    {"json", Element::kJson, true},
};

const Name* name_at_start(std::string_view header) {
    for (const Name& name : kNames) {
        if (header.starts_with(name.text)) return &name;
    }
    return nullptr;
}

std::string unescaped(std::string_view value) {
    std::string text;
    while (!value.empty()) {
        if (value.starts_with("&amp;")) {
            text += '&';
            value.remove_prefix(5);
        } else if (value.starts_with("&quot;")) {
            text += '"';
            value.remove_prefix(6);
        } else {
            text += value[0];
            value.remove_prefix(1);
        }
    }
    return text;
}

// Takes ` NAME="VALUE"` from the front of `rest` into `tag`; false: there is none.
bool take_attribute(std::string_view& rest, Tag& tag) {
    const size_t equals = rest.find("=\"");
    if (!rest.starts_with(' ') || equals == std::string_view::npos) return false;
    const size_t end = rest.find('"', equals + 2);
    if (end == std::string_view::npos) return false;
    tag.attributes.emplace_back(rest.substr(1, equals - 1),
                                unescaped(rest.substr(equals + 2, end - equals - 2)));
    rest.remove_prefix(end + 1);
    return true;
}

}  // namespace

std::string_view Tag::attribute(std::string_view name) const {
    for (const auto& [key, value] : attributes) {
        if (key == name) return value;
    }
    return {};
}

Tag parse_tag(std::string_view header, bool is_complete) {
    Tag tag;
    tag.rest = header;
    const Name* name = name_at_start(header);
    if (name == nullptr) return tag;
    std::string_view rest = header.substr(name->text.size());
    if (is_complete && !rest.empty() && rest[0] != ' ') return tag;
    tag.element = name->element;
    while (take_attribute(rest, tag)) {
    }
    tag.rest = rest;
    return tag;
}

bool is_overrun(std::string_view header, bool is_closing) {
    const Name* name = name_at_start(header);
    return name != nullptr && header.size() > name->text.size() &&
           (is_closing || !name->has_attributes);
}

}  // namespace k3pod

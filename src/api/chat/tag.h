#pragma once
// The header of a tag: the text between a marker and <sep>.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace k3pod {

enum class Element : uint8_t {
    kUnknown,
    kMessage,
    kThink,
    kResponse,
    kTools,
    kCall,
    kArgument,
    kJson,
};

struct Tag {
    Element element = Element::kUnknown;
    std::vector<std::pair<std::string_view, std::string>> attributes{};  // Values unescaped.
    std::string_view rest{};  // What follows name and attributes.

    // Empty when absent.
    std::string_view attribute(std::string_view name) const;
};

// `is_complete`: <sep> ended the header, so the name must end where the element's does. Else text
// may follow the name directly. Of an unknown element everything is rest. Views into `header`.
Tag parse_tag(std::string_view header, bool is_complete);

// True when text was added to the header of a tag that takes no attributes: then its <sep> is
// missing and the text is not part of the tag.
bool is_overrun(std::string_view header, bool is_closing);

}  // namespace k3pod

#pragma once
// The arguments of a call in the conversation's history, as the chat format writes them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/json_text.h"

namespace k3pod {

struct CallArgument {
    std::string key;
    JsonKind kind;
    std::string
        text;  // A string's decoded text; of any other value the source, literals untouched.
};

// Takes an object apart one level deep; what follows its closing brace is dropped. Blank text is a
// call without arguments. nullopt: not a JSON object.
std::optional<std::vector<CallArgument>> split_arguments(std::string_view json);

}  // namespace k3pod

#include "api/chat/call_arguments.h"

namespace k3pod {

std::optional<std::vector<CallArgument>> split_arguments(std::string_view json) {
    std::vector<CallArgument> arguments;
    if (json.find_first_not_of(" \t\r\n") == std::string_view::npos) return arguments;
    JsonReader in(json);
    std::string key;
    in.begin_object();
    while (in.next_member(key)) {
        const auto kind = in.peek();
        if (!kind) break;
        CallArgument argument{key, *kind, {}};
        if (*kind == JsonKind::kString) {
            in.read_string(argument.text);
        } else {
            std::string_view source;
            in.read_value(source);
            argument.text = source;
        }
        arguments.push_back(std::move(argument));
    }
    if (!in.status().is_ok()) return std::nullopt;
    return arguments;
}

}  // namespace k3pod

#include "api/chat/declared_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "api/chat/canonical_json.h"
#include "api/chat/json_text.h"

namespace k3pod {
namespace {

constexpr size_t kMaxNameLength = 256;

struct Tool {
    std::string type, name;  // Empty when absent or not a string.
};

// Reads the member's value into `text` if it is a string, and past it in any case.
void read_text(JsonReader& in, std::string& text) {
    std::string_view ignored;
    if (in.peek() == JsonKind::kString) {
        in.read_string(text);
    } else {
        in.read_value(ignored);
    }
}

void read_function(JsonReader& in, std::string& name) {
    std::string key;
    std::string_view ignored;
    if (in.peek() != JsonKind::kObject) {
        in.read_value(ignored);
        return;
    }
    in.begin_object();
    while (in.next_member(key)) {
        if (key == "name") {
            read_text(in, name);
        } else {
            in.read_value(ignored);
        }
    }
}

Tool read_tool(JsonReader& in) {
    Tool tool;
    std::string key;
    std::string_view ignored;
    in.begin_object();
    while (in.next_member(key)) {
        if (key == "type") {
            read_text(in, tool.type);
        } else if (key == "function") {
            read_function(in, tool.name);
        } else {
            in.read_value(ignored);
        }
    }
    return tool;
}

// An array of objects whose function has a name.
Result<std::vector<Tool>> read_tools(std::string_view tools_json) {
    JsonReader in(tools_json);
    std::vector<Tool> tools;
    in.begin_array();
    while (in.next_item()) tools.push_back(read_tool(in));
    if (!in.finish()) return in.status().with_context("tools");
    for (size_t i = 0; i < tools.size(); ++i) {
        if (!tools[i].name.empty()) continue;
        return invalid_argument(
            fmt::format("tools[{}]: has no function.name; give every tool a name", i));
    }
    return tools;
}

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_tool_name(std::string_view name) {
    return name.size() <= kMaxNameLength && is_letter(name[0]) &&
           std::all_of(name.begin(), name.end(),
                       [](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; });
}

}  // namespace

Result<std::string> DeclaredTools::declare(std::string_view tools_json) {
    K3POD_ASSIGN(const std::vector<Tool> tools, read_tools(tools_json));
    for (const Tool& tool : tools) names_.insert(tool.name);
    return canonical_tools(tools_json);
}

Result<std::string> DeclaredTools::declare_dynamic(std::string_view tools_json) {
    K3POD_ASSIGN(const std::vector<Tool> tools, read_tools(tools_json));
    for (size_t i = 0; i < tools.size(); ++i) {
        const Tool& tool = tools[i];
        const auto refuse = [&](std::string_view what) {
            return invalid_argument(fmt::format("tools[{}]: {}", i, what));
        };
        if (tool.type != "function") {
            return refuse(fmt::format("type is \"{:.40}\", expected \"function\"", tool.type));
        }
        if (!is_tool_name(tool.name)) {
            return refuse(
                fmt::format("the name \"{:.40}\" ({} bytes) is not 1 to {} letters, digits, "
                            "underscores and hyphens that start with a letter or an "
                            "underscore",
                            tool.name, tool.name.size(), kMaxNameLength));
        }
        if (!names_.insert(tool.name).second) {
            return refuse(
                fmt::format("\"{:.40}\" is declared already; give it another name", tool.name));
        }
    }
    return canonical_tools(tools_json);
}

}  // namespace k3pod

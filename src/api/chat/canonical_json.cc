#include "api/chat/canonical_json.h"

#include <algorithm>
#include <vector>

#include "api/chat/json_text.h"

namespace k3pod {
namespace {

// What a value is in a list of tools; kNone in all other JSON.
enum class Part : uint8_t { kNone, kTools, kTool, kFunction };

struct Member {
    std::string key;
    size_t begin, end;  // Of its text in the output.
};

void write_value(JsonReader& in, Part part, std::string& out);

void write_string(std::string_view text, std::string& out) {
    out += '"';
    append_json_escaped(text, out);
    out += '"';
}

void write_array(JsonReader& in, Part part, std::string& out) {
    const Part item = part == Part::kTools ? Part::kTool : Part::kNone;
    in.begin_array();
    out += '[';
    for (bool is_first = true; in.next_item(); is_first = false) {
        if (!is_first) out += ',';
        write_value(in, item, out);
    }
    out += ']';
}

// Brings the text of `members`, which ends `out`, into the order of their keys.
void sort_members(std::vector<Member>& members, std::string& out) {
    const auto is_less = [](const Member& a, const Member& b) { return a.key < b.key; };
    const auto is_unordered = [](const Member& a, const Member& b) { return a.key >= b.key; };
    if (std::adjacent_find(members.begin(), members.end(), is_unordered) == members.end()) return;
    const size_t begin = members.front().begin;
    std::stable_sort(members.begin(), members.end(), is_less);
    std::string sorted;
    for (size_t i = 0; i < members.size(); ++i) {
        if (i + 1 < members.size() && members[i].key == members[i + 1].key) continue;
        if (!sorted.empty()) sorted += ',';
        sorted.append(out, members[i].begin, members[i].end - members[i].begin);
    }
    out.replace(begin, std::string::npos, sorted);
}

void write_object(JsonReader& in, Part part, std::string& out) {
    const bool drops_nulls = part == Part::kTool || part == Part::kFunction;
    std::vector<Member> members;
    std::string key;
    in.begin_object();
    out += '{';
    while (in.next_member(key)) {
        if (std::string_view ignored; drops_nulls && in.peek() == JsonKind::kNull) {
            in.read_value(ignored);
            continue;
        }
        if (!members.empty()) out += ',';
        const size_t begin = out.size();
        write_string(key, out);
        out += ':';
        const bool is_function = part == Part::kTool && key == "function";
        write_value(in, is_function ? Part::kFunction : Part::kNone, out);
        members.push_back({key, begin, out.size()});
    }
    sort_members(members, out);
    out += '}';
}

void write_value(JsonReader& in, Part part, std::string& out) {
    const auto kind = in.peek();
    if (!kind) return;
    if (*kind == JsonKind::kObject) return write_object(in, part, out);
    if (*kind == JsonKind::kArray) return write_array(in, part, out);
    if (*kind == JsonKind::kString) {
        std::string text;
        in.read_string(text);
        return write_string(text, out);
    }
    std::string_view literal;
    in.read_value(literal);
    out += literal;
}

Result<std::string> canonical(std::string_view text, Part part) {
    JsonReader in(text);
    std::string out;
    write_value(in, part, out);
    if (!in.finish()) return in.status();
    return out;
}

}  // namespace

Result<std::string> canonical_json(std::string_view text) {
    return canonical(text, Part::kNone);
}

Result<std::string> canonical_tools(std::string_view text) {
    return canonical(text, Part::kTools);
}

}  // namespace k3pod

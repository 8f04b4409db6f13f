#pragma once
// Text from outside (file names, peers, models) on its way to a terminal or a log.

#include <string>
#include <string_view>

namespace k3pod {

// `text` with what a terminal would obey, or a log would take for a line of its own, made visible:
// control characters (C0, DEL, C1) and bytes that are not UTF-8 become \n, \t, \r or \xNN.
// Characters in `kept` stay as they are.
std::string escape_controls(std::string_view text, std::string_view kept = {});

// Whether escape_controls() would change it.
bool has_controls(std::string_view text);

}  // namespace k3pod

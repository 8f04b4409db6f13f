#pragma once
// Text from outside: files, peers, models.

#include <cstddef>
#include <string>
#include <string_view>

namespace k3pod {

// `text` with what a terminal would obey, or a log would take for a line of its own, made visible:
// control characters (C0, DEL, C1) and bytes that are not UTF-8 become \n, \t, \r or \xNN.
// Characters in `kept` stay as they are.
std::string escape_controls(std::string_view text, std::string_view kept = {});

// Whether escape_controls() would change it.
bool has_controls(std::string_view text);

// The beginning of `text`, in whole characters and with "..." behind it, where there is more: what
// a message shows of a value that may be of any length.
std::string shortened(std::string_view text, size_t max_bytes = 64);

// `text` behind the UTF-8 byte order mark that some editors write; all of it when there is none.
std::string_view without_bom(std::string_view text);

}  // namespace k3pod

#pragma once
// Where a text stops being JSON, for people who wrote it by hand: fast parsers do not tell.

#include <string>
#include <string_view>

namespace k3pod {

// "not valid JSON at line 3, column 7: WHY" with the end of the first token that cannot stand
// there; without the place when `text` is JSON and only the parser's own limits were broken. Reads
// the text again, so only for a text that was refused.
std::string not_json(std::string_view text, std::string_view why);

}  // namespace k3pod

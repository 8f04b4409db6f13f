#pragma once
// JSON in the one form that the model was trained to read: compact, keys sorted at every level (of
// equal keys the last counts), non-ASCII text and number literals as the client wrote them.

#include <string>
#include <string_view>

#include "k3pod/base/status.h"

namespace k3pod {

Result<std::string> canonical_json(std::string_view text);

// The same for an array of tools, without the null fields of a tool and of its function. Nulls
// further inside, as in a schema's enum, mean something and stay.
Result<std::string> canonical_tools(std::string_view text);

}  // namespace k3pod

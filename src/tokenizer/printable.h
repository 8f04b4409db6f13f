#pragma once

#include <string>
#include <string_view>

namespace k3pod {

// `value` in quotes for a message: at most 40 bytes, unprintable ones as \xNN.
std::string printable(std::string_view value);

}  // namespace k3pod

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "k3pod/base/status.h"

namespace k3pod {

// The whole file. kNotFound when it cannot be opened, kInvalidArgument when it is larger than
// `limit_bytes`; both name it.
Result<std::string> read_file(const std::filesystem::path& file, int64_t limit_bytes);

// `value` in quotes for a message: at most 40 bytes, unprintable ones as \xNN.
std::string printable(std::string_view value);

}  // namespace k3pod

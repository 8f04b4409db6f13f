#pragma once
// What every transport promises about a message, checked in one place.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "k3pod/base/status.h"

namespace k3pod::transport {

// Covers 512 rows of 3584 fp32 (7 MiB), the largest reply of the largest step, twice over.
inline constexpr int64_t kMaxMessageBytes = 16 << 20;

// kInvalidArgument naming `peer_name` unless the header is 64 bytes and the payload within the
// limit.
Status check_message(std::span<const std::byte> header, std::span<const std::byte> payload,
                     const std::string& peer_name);

}  // namespace k3pod::transport

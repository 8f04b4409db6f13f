#pragma once
// Checks on frames that came from outside. Nothing here trusts a byte before it is checked.

#include <cstdint>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/wire/frame.h"

namespace k3pod::wire {

// Fills magic, version and header_check (over the other fields as they are). Call last.
void seal_header(FrameHeader& header);

// XXH3-64.
uint64_t hash64(std::span<const std::byte> bytes);
// Checksum of a payload as stored in payload_check: the low half of it.
uint32_t payload_checksum(std::span<const std::byte> payload);

// Reads and checks the 64 bytes: length, magic, version, header_check, kind. On failure the message
// names the field, the value found and the one expected.
Result<FrameHeader> decode_header(std::span<const std::byte> bytes);

// Shape checks of a request: rows, entries and layer within `limits`, payload size as computed,
// payload checksum if flagged, every entry's row < rows, expert < num_experts, weight finite,
// entries sorted by (expert, row) without repeats.
Status check_request(const FrameHeader& header, std::span<const std::byte> payload,
                     const FrameLimits& limits);

// Shape checks of a reply: payload size for rows and flags (empty when status is not ok), checksum
// if flagged.
Status check_reply(const FrameHeader& header, std::span<const std::byte> payload,
                   const FrameLimits& limits);

// Short name for logs and metric labels: "ok", "wrong_epoch", ...
const char* status_name(FrameStatus status);

}  // namespace k3pod::wire

#pragma once
// The messages between a link's ends: a 64-byte header of their own on a transport of their own.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace k3pod::fabric {

enum class LinkKind : uint32_t {
    kEcho = 1,    // send the payload back
    kBulk = 2,    // say that it has arrived
    kAnswer = 3,  // to either
};

struct LinkHeader {
    uint32_t magic = 0x4b4e4c4bu;
    LinkKind kind{};
    uint32_t server = 0;  // the station's number of the server, sent back
    uint32_t reserved = 0;
    uint64_t number = 0;  // sent back
    std::array<uint64_t, 5> padding{};
};
static_assert(sizeof(LinkHeader) == 64);

// Empty when it is none of ours.
inline std::optional<LinkHeader> read_link_header(std::span<const std::byte> bytes) {
    LinkHeader header;
    if (bytes.size() != sizeof(header)) return std::nullopt;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.magic != LinkHeader().magic) return std::nullopt;
    return header;
}

}  // namespace k3pod::fabric

#include "k3pod/wire/stage.h"

#include <fmt/format.h>

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace k3pod::wire {
namespace {

uint32_t checksum(const StageHeader& header) {
    return static_cast<uint32_t>(XXH3_64bits(&header, offsetof(StageHeader, header_check)));
}

template <class... Args>
Status refuse(fmt::format_string<Args...> format, Args&&... args) {
    return invalid_argument("stage message: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

void seal_header(StageHeader& header) {
    header.magic = kMagic;
    header.version = kVersion;
    header.header_check = checksum(header);
}

Result<StageHeader> decode_stage_header(std::span<const std::byte> bytes,
                                        std::span<const std::byte> payload) {
    if (bytes.size() != kHeaderBytes) {
        return refuse("header is {} bytes long, expected {}", bytes.size(), kHeaderBytes);
    }
    StageHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.magic != kMagic || header.version != kVersion) {
        return refuse("magic is {:#010x} and version {}, expected {:#010x} and {}", header.magic,
                      header.version, kMagic, kVersion);
    }
    if (const uint32_t found = checksum(header); found != header.header_check) {
        return refuse("header checksum is {:#010x}, header_check says {:#010x}", found,
                      header.header_check);
    }
    if (header.kind < StageKind::kOpen || header.kind > StageKind::kAgain) {
        return refuse("kind is {}, expected 16 to 21", static_cast<int>(header.kind));
    }
    if (header.payload_bytes != payload.size()) {
        return refuse("{} payload bytes arrived, payload_bytes says {}", payload.size(),
                      header.payload_bytes);
    }
    return header;
}

}  // namespace k3pod::wire

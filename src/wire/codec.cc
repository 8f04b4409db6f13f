#include "k3pod/wire/codec.h"

// Inlined, the checksum of a header costs a few nanoseconds: the compiler sees the size.
#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace k3pod::wire {
namespace {

static_assert(std::endian::native == std::endian::little,
              "frames are written from memory as they are: the host must be little endian");

constexpr uint32_t kSwappedMagic = 0x4b335033u;
constexpr uint16_t kKnownFlags = kFlagPayloadChecked | kFlagReplyF32 | kFlagLastPart;

uint32_t header_checksum(const void* header) {
    return static_cast<uint32_t>(XXH3_64bits(header, offsetof(FrameHeader, header_check)));
}

template <class... Args>
Status refuse(fmt::format_string<Args...> format, Args&&... args) {
    return invalid_argument("frame: " + fmt::format(format, std::forward<Args>(args)...));
}

Status refuse_magic(uint32_t magic) {
    if (magic == kSwappedMagic) {
        return refuse(
            "magic is {:#010x}: the sender has the other byte order; every node must be "
            "little endian",
            magic);
    }
    return refuse("magic is {:#010x}, expected {:#010x}; the sender is no k3pod data plane", magic,
                  kMagic);
}

// What a request and a reply have in common: fields that must lie within the limits of hello.
Status check_shape(const FrameHeader& header, const FrameLimits& limits) {
    if ((header.flags & ~kKnownFlags) != 0) {
        return refuse(
            "flags are {:#06x}, this version knows {:#06x}; start the same build on "
            "every node",
            header.flags, kKnownFlags);
    }
    if (header.part != 0) {
        return refuse("part is {}, expected 0: the transport puts long frames together",
                      header.part);
    }
    if (header.layer >= limits.num_layers) {
        return refuse("layer is {}, the model has {}", header.layer, limits.num_layers);
    }
    if (header.rows == 0 || header.rows > limits.max_rows) {
        return refuse("rows is {}, expected 1 to {} as agreed in hello", header.rows,
                      limits.max_rows);
    }
    return Status::ok();
}

Status check_payload(const FrameHeader& header, std::span<const std::byte> payload,
                     int64_t expected_bytes) {
    if (header.payload_bytes != expected_bytes) {
        return refuse(
            "payload_bytes is {}, expected {} for rows {}, entries {}, flags {:#06x}, "
            "status {}",
            header.payload_bytes, expected_bytes, header.rows, header.entries, header.flags,
            static_cast<int>(header.status));
    }
    if (static_cast<int64_t>(payload.size()) != expected_bytes) {
        return refuse(
            "{} payload bytes arrived, payload_bytes says {}; the message was cut or "
            "padded on its way",
            payload.size(), header.payload_bytes);
    }
    if ((header.flags & kFlagPayloadChecked) != 0) {
        const uint32_t found = payload_checksum(payload);
        if (found != header.payload_check) {
            return refuse(
                "payload checksum is {:#010x}, payload_check says {:#010x}; the bytes "
                "changed on their way",
                found, header.payload_check);
        }
    }
    return Status::ok();
}

Status check_entry(const WireEntry& entry, int64_t index, const FrameHeader& header,
                   const FrameLimits& limits) {
    if (entry.row >= header.rows) {
        return refuse("entry {} names row {}, the frame has {}", index, entry.row, header.rows);
    }
    if (entry.expert >= limits.num_experts) {
        return refuse("entry {} names expert {}, the layer has {}", index, entry.expert,
                      limits.num_experts);
    }
    if (!std::isfinite(entry.weight)) {
        return refuse("entry {} has weight {}, expected a finite one", index, entry.weight);
    }
    return Status::ok();
}

// `bytes` holds exactly header.entries entries, at any alignment.
Status check_entries(const std::byte* bytes, const FrameHeader& header, const FrameLimits& limits) {
    int64_t previous_key = -1;
    for (int64_t i = 0; i < header.entries; ++i) {
        WireEntry entry;
        std::memcpy(&entry, bytes + i * int64_t{sizeof(WireEntry)}, sizeof(entry));
        K3POD_TRY(check_entry(entry, i, header, limits));
        const int64_t key = int64_t{entry.expert} << 16 | entry.row;
        if (key <= previous_key) {
            return refuse(
                "entry {} (expert {}, row {}) does not follow entry {} (expert {}, row "
                "{}); entries are sorted by expert, then row, without repeats",
                i, entry.expert, entry.row, i - 1, previous_key >> 16, previous_key & 0xffff);
        }
        previous_key = key;
    }
    return Status::ok();
}

}  // namespace

void seal_header(FrameHeader& header) {
    header.magic = kMagic;
    header.version = kVersion;
    header.header_check = header_checksum(&header);
}

Result<FrameHeader> decode_header(std::span<const std::byte> bytes) {
    if (bytes.size() != kHeaderBytes) {
        return refuse("header is {} bytes long, expected {}", bytes.size(), kHeaderBytes);
    }
    FrameHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.magic != kMagic) return refuse_magic(header.magic);
    if (header.version != kVersion) {
        return refuse("version is {}, expected {}; start the same build on every node",
                      header.version, kVersion);
    }
    const uint32_t found = header_checksum(&header);
    if (found != header.header_check) {
        return refuse(
            "header checksum is {:#010x}, header_check says {:#010x}; the header changed "
            "on its way",
            found, header.header_check);
    }
    if (header.kind < FrameKind::kRequest || header.kind > FrameKind::kRefuse) {
        return refuse("kind is {}, expected 1 to 7", static_cast<int>(header.kind));
    }
    return header;
}

Status check_request(const FrameHeader& header, std::span<const std::byte> payload,
                     const FrameLimits& limits) {
    if (header.kind != FrameKind::kRequest) {
        return refuse("kind is {}, expected 1 (request)", static_cast<int>(header.kind));
    }
    K3POD_TRY(check_shape(header, limits));
    if (header.status != FrameStatus::kOk) {
        return refuse("status is {} in a request, expected 0", static_cast<int>(header.status));
    }
    const int64_t max_entries = int64_t{header.rows} * limits.top_k;
    if (header.entries > max_entries) {
        return refuse("entries is {}, {} rows with top-k {} allow {}", header.entries, header.rows,
                      limits.top_k, max_entries);
    }
    const int64_t expected = request_payload_bytes(limits.latent, header.rows, header.entries);
    K3POD_TRY(check_payload(header, payload, expected));
    const int64_t row_bytes = request_payload_bytes(limits.latent, header.rows, 0);
    return check_entries(payload.data() + row_bytes, header, limits);
}

Status check_reply(const FrameHeader& header, std::span<const std::byte> payload,
                   const FrameLimits& limits) {
    const bool is_refusal = header.kind == FrameKind::kRefuse;
    if (header.kind != FrameKind::kReply && !is_refusal) {
        return refuse("kind is {}, expected 2 (reply) or 7 (refuse)",
                      static_cast<int>(header.kind));
    }
    if (header.status > FrameStatus::kFault) {
        return refuse("status is {}, expected 0 to 5", static_cast<int>(header.status));
    }
    if (is_refusal && header.status == FrameStatus::kOk) {
        return refuse("a refusal has status 0 (ok), expected the reason");
    }
    // A refusal echoes the fields it objects to, so only an answer with rows is held to the limits.
    if (header.status != FrameStatus::kOk) return check_payload(header, payload, 0);
    K3POD_TRY(check_shape(header, limits));
    const bool f32 = (header.flags & kFlagReplyF32) != 0;
    return check_payload(header, payload, reply_payload_bytes(limits.latent, header.rows, f32));
}

const char* status_name(FrameStatus status) {
    switch (status) {
        case FrameStatus::kOk:
            return "ok";
        case FrameStatus::kWrongEpoch:
            return "wrong_epoch";
        case FrameStatus::kNotMyShard:
            return "not_my_shard";
        case FrameStatus::kBadFrame:
            return "bad_frame";
        case FrameStatus::kBusy:
            return "busy";
        case FrameStatus::kFault:
            return "fault";
    }
    return "unknown";
}

}  // namespace k3pod::wire

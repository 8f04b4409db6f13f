#pragma once
// The frame of the data plane: one request and one reply per (step, layer, holder). Little endian.
// Host code, GPU packing kernels and the fuzzer share this file, so it names every byte once.
// docs/wire.md is the prose; a test compares its table with these offsets.
//
//   request  = FrameHeader, rows x L bf16, entries x WireEntry (sorted by expert, then row)
//   reply    = FrameHeader, rows x L bf16 (or f32 with kFlagReplyF32), same rows in the same order
//
// An exchange is identified by (session, epoch, step, layer, node); servers keep no state between
// frames.

#include <cstddef>
#include <cstdint>

namespace k3pod::wire {

inline constexpr uint32_t kMagic = 0x3350334bu;  // "K3P3" in memory order; also tells byte order.
inline constexpr uint8_t kVersion = 1;

enum class FrameKind : uint8_t {
    kRequest = 1,
    kReply = 2,
    kHeartbeat = 3,
    kHeartbeatReply = 4,
    kBulkChunk = 5,
    kBulkAck = 6,
    kRefuse = 7,
};

// Only in replies and refusals.
enum class FrameStatus : uint16_t {
    kOk = 0,
    kWrongEpoch = 1,
    kNotMyShard = 2,
    kBadFrame = 3,
    kBusy = 4,
    kFault = 5,
};

inline constexpr uint16_t kFlagPayloadChecked = 1u << 0;  // payload_check holds a checksum.
inline constexpr uint16_t kFlagReplyF32 = 1u << 1;        // Reply rows are (to be) fp32.
inline constexpr uint16_t kFlagLastPart = 1u << 2;  // Last message of a frame split into parts.

struct FrameHeader {
    uint32_t magic = 0;
    uint8_t version = 0;
    FrameKind kind{};  // 0 is no kind: a header that nobody filled is refused.
    uint16_t flags = 0;
    uint64_t session = 0;  // Random, agreed over control; an unknown one is dropped and counted.
    uint32_t epoch = 0;    // Number of the placement.
    uint16_t layer = 0;    // 0-based decoder layer.
    uint16_t rows = 0;     // Token rows in the whole frame.
    uint64_t step = 0;     // Monotonic for the life of the session.
    uint32_t entries = 0;  // (row, expert, weight) triples in the whole frame; <= rows x top-k.
    uint32_t payload_bytes = 0;  // Of the whole frame; must equal payload_bytes(...) below.
    uint64_t sent_ns = 0;        // Sender's clock, echoed in the reply.
    uint16_t attempt = 0;        // 0, then counts resends; echoed.
    FrameStatus status = FrameStatus::kOk;
    uint16_t node = 0;           // Holder's index in the placement.
    uint16_t part = 0;           // Index of this message when a frame is split.
    uint32_t payload_check = 0;  // Low 32 bits of XXH3-64 over this message's payload, or 0.
    uint32_t header_check = 0;   // Low 32 bits of XXH3-64 over bytes [0, 60).
};

inline constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(FrameHeader) == kHeaderBytes);
static_assert(offsetof(FrameHeader, session) == 8 && offsetof(FrameHeader, epoch) == 16);
static_assert(offsetof(FrameHeader, layer) == 20 && offsetof(FrameHeader, step) == 24);
static_assert(offsetof(FrameHeader, entries) == 32 && offsetof(FrameHeader, payload_bytes) == 36);
static_assert(offsetof(FrameHeader, sent_ns) == 40 && offsetof(FrameHeader, attempt) == 48);
static_assert(offsetof(FrameHeader, node) == 52 && offsetof(FrameHeader, payload_check) == 56);
static_assert(offsetof(FrameHeader, header_check) == 60);

// One pick: row `row` of this frame goes through expert `expert` of the layer with weight `weight`.
struct WireEntry {
    uint16_t row = 0;
    uint16_t expert = 0;
    float weight = 0;
};
static_assert(sizeof(WireEntry) == 8);

// Shape that both ends agreed on in hello; every frame is checked against it.
struct FrameLimits {
    int32_t latent = 0;  // L
    int32_t num_layers = 0;
    int32_t num_experts = 0;
    int32_t top_k = 0;
    int32_t max_rows = 0;  // Rows a frame may carry, <= 65535.
    bool operator==(const FrameLimits&) const = default;
};

// Payload sizes in bytes. Rows first, entries behind; L is even so entries stay 4-byte aligned.
constexpr int64_t request_payload_bytes(int32_t latent, int32_t rows, int64_t entries) {
    return int64_t{rows} * latent * 2 + entries * int64_t{sizeof(WireEntry)};
}
constexpr int64_t reply_payload_bytes(int32_t latent, int32_t rows, bool f32) {
    return int64_t{rows} * latent * (f32 ? 4 : 2);
}

}  // namespace k3pod::wire

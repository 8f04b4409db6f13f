#pragma once
// Messages that bring expert shards from the station to an expert server. Little endian, 64 bytes
// in front of each; docs/staging.md is the prose, and a test compares its table with these offsets.
//
//   station                       expert server
//   open                     ->
//                            <-   ask       (payload: StageAsk for each shard that is missing)
//   chunk, chunk, ...        ->             (payload: a chunk of a packed shard)
//   same                     ->             (the hash that was asked with is still right)
//                            <-   ack       (the shard is there and its hash right)
//                            <-   again     (this chunk arrived damaged)

#include <cstddef>
#include <cstdint>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/wire/frame.h"

namespace k3pod::wire {

enum class StageKind : uint8_t {
    kOpen = 16,
    kAsk = 17,
    kChunk = 18,
    kSame = 19,
    kAck = 20,
    kAgain = 21,
};

struct StageHeader {
    uint32_t magic = 0;
    uint8_t version = 0;
    StageKind kind{};
    uint16_t zero = 0;
    uint64_t session = 0;        // agreed over control; a message of another one is dropped
    uint32_t shard = 0;          // its index in the assignment's list
    uint32_t payload_bytes = 0;  // of this message
    uint64_t offset = 0;         // of a chunk in the shard
    uint64_t shard_bytes = 0;    // of the whole packed shard
    uint64_t shard_hash = 0;     // k3pod::shard_hash()
    uint64_t chunk_hash = 0;     // of the payload; in `again`: the one found
    uint32_t also_zero = 0;
    uint32_t header_check = 0;  // low 32 bits of XXH3-64 over bytes [0, 60)
};
static_assert(sizeof(StageHeader) == kHeaderBytes);
static_assert(offsetof(StageHeader, session) == offsetof(FrameHeader, session));
static_assert(offsetof(StageHeader, offset) == 24 && offsetof(StageHeader, chunk_hash) == 48);
static_assert(offsetof(StageHeader, header_check) == offsetof(FrameHeader, header_check));

// A shard that a node wants; the station need not send bytes that have the known hash.
struct StageAsk {
    uint32_t shard = 0;
    uint32_t zero = 0;
    uint64_t known_hash = 0;  // 0: nothing is known
};
static_assert(sizeof(StageAsk) == 16);

// Fills magic, version and header_check. Call last.
void seal_header(StageHeader& header);

// Checks length, magic, version, checksum, kind, and that payload_bytes arrived. The message names
// the field, the value found and the one expected.
Result<StageHeader> decode_stage_header(std::span<const std::byte> header,
                                        std::span<const std::byte> payload);

}  // namespace k3pod::wire

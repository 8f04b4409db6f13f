#pragma once
// Messages longer than one UCX fragment are sent as parts and put together here. UCX could do it
// too, but its several-fragment messages carried several bugs (docs/wire.md), and parts work alike
// on every transport.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/wire/frame.h"

namespace k3pod::ucx {

// In front of each part; behind it in the first part, the 64 bytes of the message's own header.
struct PartHeader {
    uint64_t sender = 0;   // random number of the sending transport
    uint32_t stream = 0;   // the sender's number for this connection: parts of one arrive in order
    uint32_t message = 0;  // counts messages of the stream
    uint32_t offset = 0;   // of this part in the payload
    uint32_t total = 0;    // payload bytes of the whole message
};
static_assert(sizeof(PartHeader) == 24);
inline constexpr size_t kFirstPartHeaderBytes = sizeof(PartHeader) + wire::kHeaderBytes;

class Reassembly {
  public:
    struct Message {
        std::span<const std::byte> header;
        std::span<const std::byte> payload;
    };

    explicit Reassembly(const Clock& clock) : clock_(clock) {}

    // Takes one part. Gives the message when it is complete, valid until the next call. A part that
    // does not continue what is there (its sender died, bytes are wrong) is an error, and the
    // message it belongs to is forgotten.
    Result<std::optional<Message>> add(std::span<const std::byte> header,
                                       std::span<const std::byte> payload);

    size_t num_unfinished() const { return unfinished_.size(); }

  private:
    struct Buffer {
        std::unique_ptr<std::byte[]> bytes;
        size_t capacity = 0;
    };
    struct Unfinished {
        std::vector<std::byte> header;
        Buffer buffer;
        uint32_t message = 0;
        uint32_t total = 0;
        uint32_t received = 0;
        TimePoint last_part{};
    };
    using Key = std::pair<uint64_t, uint32_t>;  // sender, stream

    Status begin(const Key& key, const PartHeader& part, std::span<const std::byte> header);
    void drop_stale();
    Buffer take_buffer(size_t num_bytes);
    void give_back(Buffer buffer);

    const Clock& clock_;
    std::map<Key, Unfinished> unfinished_;
    std::vector<Buffer> spare_;
    Unfinished finished_;  // what add() gave out last
};

}  // namespace k3pod::ucx

#pragma once
// The expert server's end of staging. Its caller's thread drives the transport.

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "exchange/drive_mutex.h"
#include "k3pod/exchange/staging.h"
#include "k3pod/wire/stage.h"

namespace k3pod::exchange {

class Receiver final : public StageReceiver, private TransportHandler {
  public:
    Receiver(WaitPolicy wait, const Clock& clock, MetricsRegistry& metrics);

    Status start(const MakeTransport& make_transport);
    std::vector<std::byte> local_address() const override { return address_; }
    Status receive(const Session& session, StagedLoad& load) override;

  private:
    // A shard of which not all chunks are here.
    struct Incoming {
        std::span<std::byte> room;
        uint64_t hash = 0;
        std::vector<uint64_t> chunk_hashes;
        std::vector<bool> has_chunk;
        int64_t num_chunks = 0;  // that are here
    };
    struct Slot {
        wire::StageHeader header{};
        std::vector<std::byte> payload;
        bool is_in_flight = false;
    };

    void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    void on_sent(uint64_t token) override;
    void on_peer_failed(PeerId peer, const Status& why) override;
    Status take_chunk(const wire::StageHeader& header, std::span<const std::byte> payload);
    Result<Incoming*> incoming(const wire::StageHeader& header);

    Status drive_until_complete(const Session& session);
    Status finish_arrived(const Session& session);
    Status say_what_is_noted();
    Status post(const wire::StageHeader& header, std::span<const std::byte> payload);
    void flush();

    const WaitPolicy wait_;
    const Clock& clock_;
    Counter& received_bytes_;
    Counter& damaged_;
    Counter& dropped_;
    std::vector<std::byte> address_;

    DriveMutex mutex_;  // nobody else wants it; the pacer does
    uint64_t session_ = 0;
    StagedLoad* load_ = nullptr;  // during receive()
    PeerId station_ = kNoPeer;
    // Noted by the handler, done after progress().
    bool is_opened_ = false;
    std::vector<uint32_t> arrived_, same_;
    std::vector<wire::StageHeader> answers_;
    Status failure_;

    std::map<uint32_t, Incoming> incoming_;
    std::deque<Slot> slots_;  // stay where they are: an address is the token of its send
    std::unique_ptr<Transport> transport_;
};

}  // namespace k3pod::exchange

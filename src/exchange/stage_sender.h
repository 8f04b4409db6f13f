#pragma once
// The station's end of staging. One thread drives the transport; the reader's threads fill what it
// sends. stage_sender.cc has the life of streams and the sending, stage_answers.cc what nodes say.

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exchange/drive_mutex.h"
#include "exchange/stage_reader.h"
#include "exchange/tally.h"
#include "k3pod/exchange/staging.h"
#include "k3pod/wire/stage.h"

namespace k3pod::exchange {

class Sender final : public StageSender, private TransportHandler {
  public:
    Sender(const StageOptions& options, const ShardSource& source, const Clock& clock,
           MetricsRegistry& metrics, StageFailed failed);
    ~Sender() override;

    Status start(const MakeTransport& make_transport);

    std::vector<std::byte> local_address() const override { return address_; }
    void attach(const std::string& node, std::span<const std::byte> address, uint64_t session,
                std::span<const Shard> shards) override;
    void detach(const std::string& node) override;
    void complete(const std::string& node) override;

  private:
    // A shard from its reading to its acknowledgement.
    struct Outgoing {
        std::shared_ptr<const PackedShard> packed;  // null: the node has it, the hash says so
        uint64_t hash = 0;
        int64_t next_chunk = 0;
        int32_t attempt = 1;
        TimePoint sent{};
    };
    // A chunk that arrived damaged.
    struct Repeat {
        uint32_t shard;
        int64_t chunk;
    };
    struct Counters {
        Counters(MetricsRegistry& metrics, const std::string& node);
        Tally bytes, sent_shards, kept_shards, repeated_chunks;
    };
    // One session of one node.
    struct Stream {
        StreamId id = 0;
        std::string node;
        uint64_t session = 0;
        PeerId peer = kNoPeer;
        std::vector<Shard> shards;
        std::map<uint32_t, uint64_t> known_hashes;
        bool is_asked = false;
        int64_t num_open = 0;  // asked for and not acknowledged
        std::map<uint32_t, Outgoing> outgoing;
        std::deque<uint32_t> queue;  // of outgoing: to be sent
        std::deque<Repeat> repeats;
        int32_t sends_in_flight = 0;
        bool is_complete = false;  // so says the server itself
        TimePoint heard{}, next_open{};
        Counters* counters = nullptr;
    };
    // A message and the memory it is sent from; its address is the token of its send.
    struct Slot {
        wire::StageHeader header{};
        std::shared_ptr<const PackedShard> packed;
        StreamId stream = 0;
    };

    // stage_sender.cc. "_locked": under mutex_.
    void run();
    int take_read_shards_locked();
    int send_locked(Stream& stream);
    bool send_next_locked(Stream& stream);
    bool send_chunk_locked(Stream& stream, uint32_t shard, const Outgoing& outgoing, int64_t chunk);
    bool post_locked(Stream& stream, wire::StageHeader header, std::span<const std::byte> payload,
                     std::shared_ptr<const PackedShard> packed);
    void check_time_locked(TimePoint now);
    void check_stream_locked(Stream& stream, TimePoint now);
    void send_again_locked(Stream& stream, TimePoint now);
    void fail_locked(StreamId id, const Status& why);
    void fail_noted_locked();
    void erase_locked(StreamId id);
    Stream* find(StreamId id);

    // stage_answers.cc
    void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    void on_sent(uint64_t token) override;
    void on_peer_failed(PeerId peer, const Status& why) override;
    void on_ask(Stream& stream, std::span<const std::byte> payload);
    void on_ack(Stream& stream, const wire::StageHeader& header);
    void on_again(Stream& stream, const wire::StageHeader& header);

    const StageOptions options_;
    const Clock& clock_;
    MetricsRegistry& registry_;
    const StageFailed failed_;
    std::vector<std::byte> address_;
    std::atomic<bool> is_stopping_{false};
    std::atomic<bool> has_read_{false};

    StageReader reader_;  // before all that holds its bytes
    DriveMutex mutex_;    // guards everything below
    StreamId last_stream_ = 0;
    std::map<StreamId, std::unique_ptr<Stream>> streams_;
    std::map<std::string, Counters> counters_;
    std::vector<std::unique_ptr<Slot>> slots_;
    std::vector<Slot*> free_slots_;
    std::vector<std::pair<StreamId, Status>> failures_;  // noted while the transport is driven
    TimePoint last_tick_{};
    Counter& dropped_;

    std::unique_ptr<Transport> transport_;
    std::thread thread_;
};

}  // namespace k3pod::exchange

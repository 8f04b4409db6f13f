#pragma once
// The expert server's end. server.cc has the life of sessions and the worker's loop,
// server_frames.cc what the transport brings and what is answered.

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exchange/drive_mutex.h"
#include "exchange/keeper.h"
#include "exchange/message.h"
#include "exchange/server_metrics.h"
#include "k3pod/exchange/exchange.h"

namespace k3pod::exchange {

struct ServedSession {
    uint64_t id = 0;
    uint32_t epoch = 0;
    uint16_t node = 0;
    wire::FrameLimits limits;  // with the rows that the station announced
    std::vector<std::byte> station_address;
    FrameWork work;
};

// A request that has arrived and passed every check.
struct Request {
    wire::FrameHeader header{};
    HostBuffer payload;
    bool is_full = false;
};

class Server final : public ExchangeServer, private TransportHandler {
  public:
    Server(const ExchangeOptions& options, const Clock& clock, MetricsRegistry& metrics);
    ~Server() override;

    Status start(const MakeTransport& make_transport);

    std::vector<std::byte> local_address() const override { return address_; }
    Status open_session(const Assignment& assignment,
                        std::shared_ptr<const ExpertStore> store) override;
    Status open_session(const Assignment& assignment, FrameWork work) override;
    void close_session(uint64_t session) override;
    uint64_t num_frames() const override { return num_frames_; }

  private:
    // server.cc. "_locked": under mutex_.
    void close_session_locked();
    void work();
    void keep();
    void check_time_locked(TimePoint now);
    void find_station_locked(TimePoint now);
    void serve_request_locked();
    SendSlot* wait_for_slot_locked(const ServedSession& session);
    Status compute(const ServedSession& session, SendSlot& reply);

    // server_frames.cc
    void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    void on_sent(uint64_t token) override { end_send(token); }
    void on_peer_failed(PeerId peer, const Status& why) override;
    void on_request(const wire::FrameHeader& header, std::span<const std::byte> payload);
    bool is_repeat(const wire::FrameHeader& header);
    void refuse(const wire::FrameHeader& header, wire::FrameStatus why, const Status& detail);
    void count_refusal(wire::FrameStatus why, const Status& detail);
    void note(const wire::FrameHeader& header);
    void settle_locked();
    void answer_locked(SendSlot& reply, const Status& done);

    const ExchangeOptions options_;
    const Clock& clock_;
    const Nanoseconds tick_;
    std::vector<std::byte> address_;
    std::atomic<uint64_t> num_frames_{0};
    std::atomic<bool> is_stopping_{false};

    DriveMutex mutex_;                              // guards everything below
    std::shared_ptr<const ServedSession> session_;  // shared with the request in work
    // Two requests: the one that the worker has taken and the newest that waits for it. The station
    // waits for one at a time, so an older one has been given up.
    std::array<Request, 2> requests_;
    Request* arriving_ = &requests_[0];
    Request* working_ = &requests_[1];
    HostBuffer result_;  // [R, L] fp32, the worker's own
    std::array<SendSlot, 2> replies_;
    std::array<SendSlot, 16> notes_;  // refusals and heartbeat replies: headers only
    std::vector<SendSlot*> unsent_notes_;
    bool was_refusal_logged_ = false;  // in this session
    // Where replies go. Lost when the transport says so; found again while the session is open.
    PeerId station_ = kNoPeer;
    bool is_station_lost_ = false;
    bool was_station_heard_ = false;
    TimePoint station_heard_{};
    TimePoint next_search_{};
    Nanoseconds search_pause_;  // after the next search
    TimePoint last_tick_{};
    ServerMetrics metrics_;

    std::unique_ptr<Transport> transport_;  // after what its sends and handler use
    std::unique_ptr<Keeper> keeper_;
    std::thread worker_;
};

}  // namespace k3pod::exchange

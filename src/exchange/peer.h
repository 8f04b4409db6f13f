#pragma once
// One expert server as the station sees it: its connection, whether it lives, and the memory that
// frames to it are sent from. Everything under the drive mutex, but name, index and is_up.

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "exchange/client_metrics.h"
#include "exchange/message.h"
#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/transport/transport.h"

namespace k3pod::exchange {

class Peer {
  public:
    Peer(const std::string& name, uint16_t index, const wire::FrameLimits& limits, TimePoint now,
         MetricsRegistry& registry);

    const std::string& name() const { return name_; }
    uint16_t index() const { return index_; }
    // Any thread.
    bool is_up() const { return is_up_.load(std::memory_order_relaxed); }
    // Why not; ok while it is up.
    const Status& why_down() const { return why_down_; }
    // While it is down: since when; the start, when it was never up.
    TimePoint down_since() const { return down_since_; }
    PeerId id() const { return id_; }
    uint64_t session() const { return session_; }

    // Only while it is down.
    Status connect(Transport& transport, std::span<const std::byte> address, uint64_t session,
                   TimePoint now);
    // Nothing while it is down.
    void disconnect(Transport& transport, const Status& why, TimePoint now);

    // A message of this session came.
    void hear() { was_heard_ = true; }
    // At the pace of tick_of(): sends a heartbeat when nothing was heard for an interval.
    // kUnavailable when the peer is dead: silent for too long.
    Status tick(Transport& transport, TimePoint now, const ExchangeOptions& options);
    // Takes a pause of this process out of the peer's silence.
    void forgive(Nanoseconds pause) { last_heard_ += pause; }
    Nanoseconds silence(TimePoint now) const {
        return was_heard_ ? Nanoseconds{0} : now - last_heard_;
    }

    // Memory for a frame; null while both slots are on their way, perhaps in abandoned sends.
    SendSlot* free_slot();

    PeerMetrics metrics;

  private:
    Status send_heartbeat(Transport& transport, TimePoint now);

    const std::string name_;
    const uint16_t index_;
    std::atomic<bool> is_up_{false};
    Status why_down_;
    TimePoint down_since_{};
    PeerId id_ = kNoPeer;
    uint64_t session_ = 0;

    bool was_heard_ = false;  // since the last tick, which spares a clock read for each message
    TimePoint last_heard_{};
    TimePoint last_heartbeat_{};

    std::array<SendSlot, 2> slots_;
    SendSlot heartbeat_;
};

}  // namespace k3pod::exchange

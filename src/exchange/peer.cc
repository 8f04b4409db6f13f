#include "exchange/peer.h"

#include <fmt/format.h>

#include "k3pod/wire/codec.h"

namespace k3pod::exchange {

Peer::Peer(const std::string& name, uint16_t index, const wire::FrameLimits& limits, TimePoint now,
           MetricsRegistry& registry)
    : metrics(registry, name),
      name_(name),
      index_(index),
      why_down_(unavailable(fmt::format("{} is not connected yet", name))),
      down_since_(now) {
    const int64_t max_entries = int64_t{limits.max_rows} * limits.top_k;
    for (SendSlot& slot : slots_) {
        slot.payload =
            HostBuffer(wire::request_payload_bytes(limits.latent, limits.max_rows, max_entries));
    }
}

Status Peer::connect(Transport& transport, std::span<const std::byte> address, uint64_t session,
                     TimePoint now) {
    K3POD_ASSIGN(id_, transport.connect(address, name_));
    session_ = session;
    was_heard_ = false;
    last_heard_ = now;
    last_heartbeat_ = now;
    why_down_ = Status::ok();
    is_up_ = true;
    return Status::ok();
}

void Peer::disconnect(Transport& transport, const Status& why, TimePoint now) {
    if (!is_up()) return;
    is_up_ = false;
    down_since_ = now;
    why_down_ = why;
    transport.disconnect(id_);
    id_ = kNoPeer;
    session_ = 0;
}

Status Peer::tick(Transport& transport, TimePoint now, const ExchangeOptions& options) {
    if (was_heard_) last_heard_ = now;
    was_heard_ = false;
    const Nanoseconds silent = now - last_heard_;
    metrics.silence_seconds.set(is_up() ? to_seconds(silent) : 0);
    metrics.publish();
    if (!is_up() || silent < options.heartbeat_interval) return Status::ok();

    const Nanoseconds limit = options.heartbeat_interval * options.heartbeats_missed;
    if (silent >= limit) {
        return unavailable(fmt::format(
            "{} has been silent for {:.2f} s (limit {:.2f} s): its process is stopped or the link "
            "is cut",
            name_, to_seconds(silent), to_seconds(limit)));
    }
    const bool is_due = now - last_heartbeat_ >= options.heartbeat_interval;
    if (!is_due || heartbeat_.sends_in_flight > 0) return Status::ok();
    return send_heartbeat(transport, now);
}

Status Peer::send_heartbeat(Transport& transport, TimePoint now) {
    last_heartbeat_ = now;
    heartbeat_.header = {};
    heartbeat_.header.kind = wire::FrameKind::kHeartbeat;
    heartbeat_.header.session = session_;
    heartbeat_.header.node = index_;
    heartbeat_.header.sent_ns = nanoseconds_of(now);
    wire::seal_header(heartbeat_.header);
    return send_slot(transport, id_, heartbeat_);
}

SendSlot* Peer::free_slot() {
    for (SendSlot& slot : slots_) {
        if (slot.sends_in_flight == 0) return &slot;
    }
    return nullptr;
}

}  // namespace k3pod::exchange

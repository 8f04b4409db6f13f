// Transports of one process that hand each other copies of messages: no UCX, no kernel.
// One mutex guards the whole network; it is never held while a handler runs.

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "k3pod/transport/transport.h"
#include "transport/message.h"

namespace k3pod {
namespace {
class LoopbackTransport;
}

class LoopbackNetwork {
  public:
    std::mutex mutex;
    std::map<uint64_t, LoopbackTransport*> members;  // by id, which is the address
    uint64_t next_id = 1;
};

namespace {

// The address is this struct as bytes.
struct LoopbackAddress {
    uint64_t magic = 0x4b3350304c4f4f50u;
    uint64_t id = 0;
};

struct LoopbackPeer {
    std::string name;
    uint64_t id = 0;
};

struct LoopbackMessage {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
};

// What the next progress() has to report.
struct LoopbackEvents {
    std::vector<uint64_t> sent_tokens;
    std::deque<LoopbackMessage> messages;
    std::map<PeerId, std::string> failed_peers;

    bool empty() const { return sent_tokens.empty() && messages.empty() && failed_peers.empty(); }
};

class LoopbackTransport final : public Transport {
  public:
    LoopbackTransport(std::shared_ptr<LoopbackNetwork> network, TransportHandler& handler);
    ~LoopbackTransport() override;

    std::vector<std::byte> local_address() const override;
    std::string name() const override { return "loopback"; }
    Result<PeerId> connect(std::span<const std::byte> address,
                           const std::string& peer_name) override;
    void disconnect(PeerId peer) override;
    Status send(PeerId peer, std::span<const std::byte> header, std::span<const std::byte> payload,
                uint64_t token) override;
    int64_t max_message_bytes() const override { return transport::kMaxMessageBytes; }
    int progress() override;
    void wait(Nanoseconds timeout) override;
    void wake() override;

  private:
    void lose_peers_locked(uint64_t id);

    const std::shared_ptr<LoopbackNetwork> network_;
    TransportHandler& handler_;
    uint64_t id_ = 0;
    transport::HandlerGate gate_;

    // All below: guarded by network_->mutex.
    std::condition_variable changed_;
    std::map<PeerId, LoopbackPeer> peers_;
    PeerId next_peer_ = 0;
    LoopbackEvents events_;
    uint64_t wakes_ = 0;
    uint64_t wakes_answered_ = 0;
};

LoopbackTransport::LoopbackTransport(std::shared_ptr<LoopbackNetwork> network,
                                     TransportHandler& handler)
    : network_(std::move(network)), handler_(handler) {
    const std::lock_guard lock(network_->mutex);
    id_ = network_->next_id++;
    network_->members.emplace(id_, this);
}

LoopbackTransport::~LoopbackTransport() {
    const std::lock_guard lock(network_->mutex);
    network_->members.erase(id_);
    for (const auto& [id, member] : network_->members) member->lose_peers_locked(id_);
}

void LoopbackTransport::lose_peers_locked(uint64_t id) {
    for (auto it = peers_.begin(); it != peers_.end();) {
        if (it->second.id != id) {
            ++it;
            continue;
        }
        events_.failed_peers.emplace(it->first, std::move(it->second.name));
        it = peers_.erase(it);
    }
    changed_.notify_all();
}

std::vector<std::byte> LoopbackTransport::local_address() const {
    const LoopbackAddress address{.id = id_};
    const auto bytes = std::as_bytes(std::span(&address, 1));
    return {bytes.begin(), bytes.end()};
}

Result<PeerId> LoopbackTransport::connect(std::span<const std::byte> address,
                                          const std::string& peer_name) {
    gate_.check();
    LoopbackAddress parsed;
    if (address.size() == sizeof(parsed)) {
        std::memcpy(&parsed, address.data(), sizeof(parsed));
    }
    if (address.size() != sizeof(parsed) || parsed.magic != LoopbackAddress{}.magic) {
        return invalid_argument(
            fmt::format("address of {} ({} bytes) is not one of a loopback transport; both ends "
                        "must use the same transport",
                        peer_name, address.size()));
    }
    const std::lock_guard lock(network_->mutex);
    if (!network_->members.contains(parsed.id)) {
        return unavailable(fmt::format("{} (loopback {}) is gone; ask it for its address again",
                                       peer_name, parsed.id));
    }
    peers_.emplace(next_peer_, LoopbackPeer{peer_name, parsed.id});
    return next_peer_++;
}

void LoopbackTransport::disconnect(PeerId peer) {
    gate_.check();
    const std::lock_guard lock(network_->mutex);
    peers_.erase(peer);
    events_.failed_peers.erase(peer);
}

Status LoopbackTransport::send(PeerId peer, std::span<const std::byte> header,
                               std::span<const std::byte> payload, uint64_t token) {
    gate_.check();
    const std::lock_guard lock(network_->mutex);
    const auto it = peers_.find(peer);
    if (it == peers_.end()) {
        return unavailable(fmt::format("loopback peer {} is not connected", peer));
    }
    K3POD_TRY(transport::check_message(header, payload, it->second.name));
    LoopbackTransport& target = *network_->members.at(it->second.id);
    target.events_.messages.push_back(
        {{header.begin(), header.end()}, {payload.begin(), payload.end()}});
    target.changed_.notify_all();
    events_.sent_tokens.push_back(token);
    return Status::ok();
}

int LoopbackTransport::progress() {
    gate_.enter();
    LoopbackEvents events;
    {
        const std::lock_guard lock(network_->mutex);
        std::swap(events, events_);
    }
    for (const uint64_t token : events.sent_tokens) handler_.on_sent(token);
    for (const LoopbackMessage& message : events.messages) {
        handler_.on_message(message.header, message.payload);
    }
    for (const auto& [peer, name] : events.failed_peers) {
        handler_.on_peer_failed(peer, unavailable(name + " is gone"));
    }
    gate_.leave();
    return static_cast<int>(events.sent_tokens.size() + events.messages.size() +
                            events.failed_peers.size());
}

void LoopbackTransport::wait(Nanoseconds timeout) {
    std::unique_lock lock(network_->mutex);
    if (wakes_ == wakes_answered_) {
        const uint64_t wakes_at_entry = wakes_;
        changed_.wait_for(lock, timeout,
                          [&] { return wakes_ != wakes_at_entry || !events_.empty(); });
    }
    wakes_answered_ = wakes_;
}

void LoopbackTransport::wake() {
    const std::lock_guard lock(network_->mutex);
    ++wakes_;
    changed_.notify_all();
}

}  // namespace

std::shared_ptr<LoopbackNetwork> make_loopback_network() {
    return std::make_shared<LoopbackNetwork>();
}

std::unique_ptr<Transport> make_loopback_transport(std::shared_ptr<LoopbackNetwork> network,
                                                   TransportHandler& handler) {
    return std::make_unique<LoopbackTransport>(std::move(network), handler);
}

}  // namespace k3pod

// A transport with a bad wire in front of it. Every decision about a message is drawn when it is
// sent, in a fixed number of draws, so that a seed gives the same faults whatever the timing.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "k3pod/transport/transport.h"
#include "k3pod/wire/frame.h"
#include "transport/message.h"

namespace k3pod {
namespace {

// SplitMix64: a few lines that give the same numbers everywhere, unlike the standard distributions.
class Dice {
  public:
    explicit Dice(uint64_t seed) : state_(seed) {}
    uint64_t roll() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    // In [0, 1).
    double fraction() { return static_cast<double>(roll() >> 11) * 0x1p-53; }

  private:
    uint64_t state_;
};

struct Fate {
    bool is_dropped;
    bool is_duplicated;
    bool is_corrupted;
    bool is_disconnected;
    uint64_t flipped_bit;  // modulo the bits of the message
    Nanoseconds delay;
};

Fate draw_fate(const FaultPlan& plan, Dice& dice) {
    Fate fate{};
    fate.is_dropped = dice.fraction() < plan.drop_rate;
    fate.is_duplicated = dice.fraction() < plan.duplicate_rate;
    fate.is_corrupted = dice.fraction() < plan.corrupt_rate;
    fate.is_disconnected = dice.fraction() < plan.disconnect_rate;
    fate.flipped_bit = dice.roll();
    const auto range = static_cast<double>((plan.max_delay - plan.min_delay).count());
    fate.delay = plan.min_delay + Nanoseconds(static_cast<int64_t>(range * dice.fraction()));
    return fate;
}

Status check_plan(const FaultPlan& plan) {
    const std::pair<const char*, double> rates[] = {{"drop_rate", plan.drop_rate},
                                                    {"duplicate_rate", plan.duplicate_rate},
                                                    {"corrupt_rate", plan.corrupt_rate},
                                                    {"disconnect_rate", plan.disconnect_rate}};
    for (const auto& [name, rate] : rates) {
        if (rate >= 0 && rate <= 1) continue;
        return invalid_argument(fmt::format("fault plan: {} is {}, expected 0 to 1", name, rate));
    }
    if (plan.min_delay < Nanoseconds(0) || plan.max_delay < plan.min_delay) {
        return invalid_argument(
            fmt::format("fault plan: delays are {} to {} ns, expected 0 <= min_delay <= max_delay",
                        plan.min_delay.count(), plan.max_delay.count()));
    }
    return Status::ok();
}

// A message on its way. The spans are the caller's until on_sent, or `corrupted`.
struct Flight {
    PeerId peer = kNoPeer;
    uint64_t token = 0;  // the caller's
    std::span<const std::byte> header;
    std::span<const std::byte> payload;
    std::vector<std::byte> corrupted;
    int num_copies = 1;
    int num_inner_sends = 0;
};

void corrupt(Flight& flight, uint64_t bit) {
    flight.corrupted.assign(flight.header.begin(), flight.header.end());
    flight.corrupted.insert(flight.corrupted.end(), flight.payload.begin(), flight.payload.end());
    bit %= flight.corrupted.size() * 8;
    flight.corrupted[bit / 8] ^= std::byte{1} << (bit % 8);
    const std::span<const std::byte> bytes(flight.corrupted);
    flight.header = bytes.first(wire::kHeaderBytes);
    flight.payload = bytes.subspan(wire::kHeaderBytes);
}

class FaultyTransport final : public Transport, private TransportHandler {
  public:
    FaultyTransport(const FaultPlan& plan, const Clock& clock, TransportHandler& handler)
        : plan_(plan), clock_(clock), handler_(handler), dice_(plan.seed) {}
    Status open(const MakeTransport& make_inner) {
        K3POD_ASSIGN(inner_, make_inner(*this));
        return Status::ok();
    }

    std::vector<std::byte> local_address() const override { return inner_->local_address(); }
    std::string name() const override { return "faulty " + inner_->name(); }
    Result<PeerId> connect(std::span<const std::byte> address,
                           const std::string& peer_name) override;
    void disconnect(PeerId peer) override;
    Status send(PeerId peer, std::span<const std::byte> header, std::span<const std::byte> payload,
                uint64_t token) override;
    int64_t max_message_bytes() const override { return inner_->max_message_bytes(); }
    int progress() override;
    void wait(Nanoseconds timeout) override;
    void wake() override { inner_->wake(); }

  private:
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        handler_.on_message(header, payload);
    }
    void on_sent(uint64_t flight_id) override;
    void on_peer_failed(PeerId peer, const Status& why) override;

    Status launch(uint64_t flight_id);
    void launch_due();
    void lose(PeerId peer);
    int report_own_events();

    const FaultPlan plan_;
    transport::HandlerGate gate_;
    const Clock& clock_;
    TransportHandler& handler_;

    std::mutex mutex_;  // wait() looks in from outside the driver
    Dice dice_;
    std::map<PeerId, std::string> peers_;
    uint64_t next_flight_ = 0;
    std::unordered_map<uint64_t, Flight> flights_;
    std::multimap<TimePoint, uint64_t> delayed_;  // flights that are not with inner_ yet
    std::vector<uint64_t> ended_tokens_;
    std::map<PeerId, std::string> failed_peers_;
    std::unique_ptr<Transport> inner_;  // Last: it may read the flights' bytes until it is gone.
};

Result<PeerId> FaultyTransport::connect(std::span<const std::byte> address,
                                        const std::string& peer_name) {
    gate_.check();
    const std::lock_guard lock(mutex_);
    K3POD_ASSIGN(const PeerId peer, inner_->connect(address, peer_name));
    peers_.emplace(peer, peer_name);
    return peer;
}

void FaultyTransport::disconnect(PeerId peer) {
    gate_.check();
    const std::lock_guard lock(mutex_);
    lose(peer);
    failed_peers_.erase(peer);
    inner_->disconnect(peer);
}

// Forgets the peer and lands its delayed messages.
void FaultyTransport::lose(PeerId peer) {
    peers_.erase(peer);
    std::erase_if(delayed_, [&](const auto& entry) {
        const auto it = flights_.find(entry.second);
        if (it->second.peer != peer) return false;
        ended_tokens_.push_back(it->second.token);
        flights_.erase(it);
        return true;
    });
}

Status FaultyTransport::send(PeerId peer, std::span<const std::byte> header,
                             std::span<const std::byte> payload, uint64_t token) {
    gate_.check();
    const std::lock_guard lock(mutex_);
    const auto it = peers_.find(peer);
    if (it == peers_.end()) {
        return unavailable(fmt::format("{} peer {} is not connected", name(), peer));
    }
    const std::string peer_name = it->second;
    K3POD_TRY(transport::check_message(header, payload, peer_name));
    const Fate fate = draw_fate(plan_, dice_);
    if (fate.is_disconnected) {
        lose(peer);
        inner_->disconnect(peer);
        failed_peers_.emplace(peer, peer_name);
        return unavailable(peer_name + " is gone: disconnected by the fault plan");
    }
    if (fate.is_dropped) {
        ended_tokens_.push_back(token);
        return Status::ok();
    }
    const uint64_t flight_id = next_flight_++;
    Flight& flight = flights_[flight_id];
    flight.peer = peer;
    flight.token = token;
    flight.header = header;
    flight.payload = payload;
    flight.num_copies = fate.is_duplicated ? 2 : 1;
    if (fate.is_corrupted) corrupt(flight, fate.flipped_bit);
    if (fate.delay == Nanoseconds(0)) return launch(flight_id);
    delayed_.emplace(clock_.now() + fate.delay, flight_id);
    return Status::ok();
}

// Hands the flight to the wrapped transport. An error means that nothing was sent and the flight is
// over.
Status FaultyTransport::launch(uint64_t flight_id) {
    Flight& flight = flights_.at(flight_id);
    for (int copy = 0; copy < flight.num_copies; ++copy) {
        const Status status = inner_->send(flight.peer, flight.header, flight.payload, flight_id);
        if (status.is_ok()) {
            ++flight.num_inner_sends;
        } else if (flight.num_inner_sends == 0) {
            flights_.erase(flight_id);
            return status;
        }
    }
    return Status::ok();
}

void FaultyTransport::launch_due() {
    const TimePoint now = clock_.now();
    while (!delayed_.empty() && delayed_.begin()->first <= now) {
        const uint64_t flight_id = delayed_.begin()->second;
        delayed_.erase(delayed_.begin());
        const uint64_t token = flights_.at(flight_id).token;
        // The caller was told ok long ago; the peer's failure is reported on its own.
        if (!launch(flight_id).is_ok()) ended_tokens_.push_back(token);
    }
}

void FaultyTransport::on_sent(uint64_t flight_id) {
    const auto it = flights_.find(flight_id);
    if (--it->second.num_inner_sends > 0) return;
    const uint64_t token = it->second.token;
    flights_.erase(it);
    handler_.on_sent(token);
}

void FaultyTransport::on_peer_failed(PeerId peer, const Status& why) {
    lose(peer);
    handler_.on_peer_failed(peer, why);
}

int FaultyTransport::report_own_events() {
    const auto tokens = std::exchange(ended_tokens_, {});
    for (const uint64_t token : tokens) handler_.on_sent(token);
    const auto failed = std::exchange(failed_peers_, {});
    for (const auto& [peer, peer_name] : failed) {
        handler_.on_peer_failed(
            peer, unavailable(peer_name + " is gone: disconnected by the fault plan"));
    }
    return static_cast<int>(tokens.size() + failed.size());
}

int FaultyTransport::progress() {
    gate_.enter();
    const std::lock_guard lock(mutex_);
    launch_due();
    const int num_events = inner_->progress() + report_own_events();
    gate_.leave();
    return num_events;
}

void FaultyTransport::wait(Nanoseconds timeout) {
    {
        const std::lock_guard lock(mutex_);
        if (!ended_tokens_.empty() || !failed_peers_.empty()) return;
        if (!delayed_.empty()) {
            timeout = std::min(timeout, Nanoseconds(delayed_.begin()->first - clock_.now()));
        }
    }
    inner_->wait(timeout);
}

}  // namespace

Result<std::unique_ptr<Transport>> make_faulty_transport(const FaultPlan& plan, const Clock& clock,
                                                         const MakeTransport& make_inner,
                                                         TransportHandler& handler) {
    K3POD_TRY(check_plan(plan));
    auto transport = std::make_unique<FaultyTransport>(plan, clock, handler);
    K3POD_TRY(transport->open(make_inner));
    return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace k3pod

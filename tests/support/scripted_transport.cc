#include "tests/support/scripted_transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace k3pod::testing {
namespace {

constexpr std::chrono::seconds kPatience{10};

}  // namespace

class ScriptedWire::End final : public Transport {
  public:
    End(ScriptedWire& wire, TransportHandler& handler) : wire_(wire), handler_(handler) {}

    std::vector<std::byte> local_address() const override { return {std::byte{7}}; }
    std::string name() const override { return "scripted"; }
    int64_t max_message_bytes() const override { return 1 << 24; }

    Result<PeerId> connect(std::span<const std::byte>, const std::string&) override {
        const std::lock_guard lock(wire_.mutex_);
        wire_.connected_.push_back(wire_.next_peer_);
        return wire_.next_peer_++;
    }
    void disconnect(PeerId peer) override {
        const std::lock_guard lock(wire_.mutex_);
        std::erase(wire_.connected_, peer);
        wire_.disconnected_.push_back(peer);
    }
    Status send(PeerId peer, std::span<const std::byte> header, std::span<const std::byte> payload,
                uint64_t token) override {
        const std::lock_guard lock(wire_.mutex_);
        const bool is_connected =
            std::ranges::find(wire_.connected_, peer) != wire_.connected_.end();
        if (!is_connected || wire_.is_refused_) return unavailable("scripted: peer is gone");
        ScriptedMessage message{.peer = peer, .payload = {payload.begin(), payload.end()}};
        std::memcpy(&message.header, header.data(), sizeof(message.header));
        wire_.sent_.push_back(std::move(message));
        wire_.open_sends_.emplace_back(peer, token);
        wire_.changed_.notify_all();
        return Status::ok();
    }
    int progress() override {
        std::deque<Event> events;
        std::vector<uint64_t> completed;
        {
            const std::lock_guard lock(wire_.mutex_);
            events.swap(wire_.arriving_);
            std::erase_if(wire_.open_sends_, [&](const auto& open) {
                const bool is_connected =
                    std::ranges::find(wire_.connected_, open.first) != wire_.connected_.end();
                if (wire_.is_held_ && is_connected) return false;
                completed.push_back(open.second);
                return true;
            });
        }
        for (const uint64_t token : completed) handler_.on_sent(token);
        for (const Event& event : events) {
            if (event.failed != kNoPeer) {
                handler_.on_peer_failed(event.failed, unavailable(event.why));
            } else {
                handler_.on_message(event.header, event.payload);
            }
        }
        return static_cast<int>(events.size() + completed.size());
    }
    void wait(Nanoseconds timeout) override {
        std::unique_lock lock(wire_.mutex_);
        wire_.changed_.wait_for(lock, timeout,
                                [&] { return wire_.is_woken_ || !wire_.arriving_.empty(); });
        wire_.is_woken_ = false;
    }
    void wake() override {
        const std::lock_guard lock(wire_.mutex_);
        wire_.is_woken_ = true;
        wire_.changed_.notify_all();
    }

  private:
    ScriptedWire& wire_;
    TransportHandler& handler_;
};

MakeTransport ScriptedWire::factory() {
    return [this](TransportHandler& handler) -> Result<std::unique_ptr<Transport>> {
        return std::unique_ptr<Transport>(std::make_unique<End>(*this, handler));
    };
}

ScriptedMessage ScriptedWire::wait_for_sent(wire::FrameKind kind, size_t count) {
    std::unique_lock lock(mutex_);
    ScriptedMessage found;
    const auto is_there = [&] {
        size_t seen = 0;
        for (const ScriptedMessage& message : sent_) {
            if (message.header.kind != kind || ++seen != count) continue;
            found = message;
            return true;
        }
        return false;
    };
    changed_.wait_for(lock, kPatience, is_there);
    return found;
}

size_t ScriptedWire::num_sent(wire::FrameKind kind) const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count_if(
        sent_, [&](const ScriptedMessage& message) { return message.header.kind == kind; }));
}

void ScriptedWire::deliver(const wire::FrameHeader& header, std::span<const std::byte> payload) {
    const auto bytes = std::as_bytes(std::span(&header, 1));
    deliver_bytes({bytes.begin(), bytes.end()}, payload);
}

void ScriptedWire::deliver_bytes(std::vector<std::byte> header,
                                 std::span<const std::byte> payload) {
    push({.header = std::move(header), .payload = {payload.begin(), payload.end()}});
}

void ScriptedWire::fail_peer(PeerId peer, const std::string& why) {
    push({.failed = peer, .why = why});
}

void ScriptedWire::push(Event event) {
    const std::lock_guard lock(mutex_);
    arriving_.push_back(std::move(event));
    changed_.notify_all();
}

void ScriptedWire::hold_sends(bool is_held) {
    const std::lock_guard lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
}

void ScriptedWire::refuse_sends(bool is_refused) {
    const std::lock_guard lock(mutex_);
    is_refused_ = is_refused;
}

std::vector<PeerId> ScriptedWire::disconnected() const {
    const std::lock_guard lock(mutex_);
    return disconnected_;
}

}  // namespace k3pod::testing

#pragma once
// A transport whose other end is the test: it looks at what was sent, and brings messages, failures
// and completions by hand.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "k3pod/transport/transport.h"
#include "k3pod/wire/frame.h"

namespace k3pod::testing {

struct ScriptedMessage {
    PeerId peer = kNoPeer;
    wire::FrameHeader header{};
    std::vector<std::byte> payload{};
};

// The wire, as the test holds it. Any thread. Must outlive the transport.
class ScriptedWire {
  public:
    // For ExchangeClient::create and ExchangeServer::create. One transport a wire.
    MakeTransport factory();

    // Waits until `count` messages of this kind were sent; the last of them is the result, a test
    // fails by peer kNoPeer.
    ScriptedMessage wait_for_sent(wire::FrameKind kind, size_t count = 1);
    size_t num_sent(wire::FrameKind kind) const;

    // Brings a message as it is; the caller has sealed it or left that out on purpose.
    void deliver(const wire::FrameHeader& header, std::span<const std::byte> payload = {});
    void deliver_bytes(std::vector<std::byte> header, std::span<const std::byte> payload = {});
    void fail_peer(PeerId peer, const std::string& why);
    // While true, sends do not complete, except by disconnect().
    void hold_sends(bool is_held);
    // While true, send() fails.
    void refuse_sends(bool is_refused);
    std::vector<PeerId> disconnected() const;

  private:
    class End;
    struct Event {
        std::vector<std::byte> header{}, payload{};
        PeerId failed = kNoPeer;
        std::string why{};
    };
    void push(Event event);

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<ScriptedMessage> sent_;
    std::deque<Event> arriving_;
    std::vector<std::pair<PeerId, uint64_t>> open_sends_;
    std::vector<PeerId> connected_, disconnected_;
    PeerId next_peer_ = 100;
    bool is_held_ = false;
    bool is_refused_ = false;
    bool is_woken_ = false;
};

}  // namespace k3pod::testing

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "fabric/link_message.h"
#include "k3pod/fabric/link.h"

namespace k3pod {
namespace fabric {
namespace {

constexpr Nanoseconds kIdle = std::chrono::milliseconds(1);    // then it sleeps
constexpr Nanoseconds kSleep = std::chrono::milliseconds(50);  // and looks for the end
constexpr int kPollsPerYield = 20;

// What is being sent; the buffers stay until the transport is done with them.
struct Answer {
    LinkHeader header;
    std::vector<std::byte> payload;
};

class End final : public LinkEnd, private TransportHandler {
  public:
    ~End() override {
        stop_ = true;
        if (transport_) transport_->wake();
        if (thread_.joinable()) thread_.join();
    }

    Status open(const MakeTransport& make_transport) {
        K3POD_ASSIGN(transport_, make_transport(*this));
        thread_ = std::thread([this] { run(); });
        return Status::ok();
    }

    std::vector<std::byte> local_address() const override { return transport_->local_address(); }

    Status connect(std::span<const std::byte> address) override {
        const std::lock_guard lock(mutex_);
        transport_->disconnect(peer_);
        peer_ = kNoPeer;
        K3POD_ASSIGN(peer_, transport_->connect(address, "station"));
        transport_->wake();
        return Status::ok();
    }

  private:
    void run() {
        TimePoint last_event = std::chrono::steady_clock::now();
        for (int polls = 0; !stop_; ++polls) {
            const TimePoint now = std::chrono::steady_clock::now();
            if (poll() > 0) {
                last_event = now;
            } else if (now - last_event > kIdle) {
                transport_->wait(kSleep);
                last_event = now;
            } else if (polls % kPollsPerYield == 0) {
                std::this_thread::yield();
            }
        }
    }

    int poll() {
        const std::lock_guard lock(mutex_);
        const int events = transport_->progress();
        for (Answer& answer : std::exchange(unsent_, {})) send(std::move(answer));
        return events;
    }

    // An answer that cannot be sent is one that the station waits for in vain, and says so.
    void send(Answer answer) {
        const uint64_t token = next_token_++;
        Answer& kept = sending_[token] = std::move(answer);
        const Status sent =
            transport_->send(peer_, std::as_bytes(std::span(&kept.header, 1)), kept.payload, token);
        if (!sent) sending_.erase(token);
    }

    void on_message(std::span<const std::byte> bytes, std::span<const std::byte> payload) override {
        const auto header = read_link_header(bytes);
        if (!header) return;
        Answer& answer = unsent_.emplace_back();
        answer.header = *header;
        answer.header.kind = LinkKind::kAnswer;
        if (header->kind == LinkKind::kEcho) answer.payload.assign(payload.begin(), payload.end());
    }
    void on_sent(uint64_t token) override { sending_.erase(token); }
    void on_peer_failed(PeerId, const Status&) override {}

    std::mutex mutex_;  // the transport's driver
    PeerId peer_ = kNoPeer;
    std::vector<Answer> unsent_;
    std::unordered_map<uint64_t, Answer> sending_;
    uint64_t next_token_ = 0;
    std::unique_ptr<Transport> transport_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace
}  // namespace fabric

Result<std::unique_ptr<LinkEnd>> LinkEnd::create(const MakeTransport& make_transport) {
    auto end = std::make_unique<fabric::End>();
    K3POD_TRY(end->open(make_transport));
    return std::unique_ptr<LinkEnd>(std::move(end));
}

}  // namespace k3pod

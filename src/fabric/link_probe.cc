#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "fabric/link_message.h"
#include "k3pod/fabric/link.h"

namespace k3pod {
namespace fabric {
namespace {

constexpr Nanoseconds kSilence = std::chrono::seconds(2);
constexpr int64_t kBulkBytes = 60 << 10;  // one fragment on every transport that has a wire
constexpr int32_t kWindow = 16;           // bulk messages on their way to one server
constexpr int kPollsPerYield = 20;

TimePoint now() {
    return std::chrono::steady_clock::now();
}

struct Server {
    std::string name;
    PeerId peer = kNoPeer;
    uint64_t num_sent = 0, num_answered = 0;
    Status failed;
};

class Probe final : public LinkProbe, private TransportHandler {
  public:
    Status open(const MakeTransport& make_transport) {
        K3POD_ASSIGN(transport_, make_transport(*this));
        payload_.assign(static_cast<size_t>(kBulkBytes), std::byte{0x5a});
        return Status::ok();
    }

    std::vector<std::byte> local_address() const override { return transport_->local_address(); }

    Status connect(std::span<const std::byte> address, const std::string& name) override {
        Server server{.name = name, .failed = {}};
        K3POD_ASSIGN(server.peer, transport_->connect(address, name));
        servers_.push_back(std::move(server));
        headers_.resize(servers_.size() * kWindow);
        return Status::ok();
    }

    Result<std::vector<double>> round_trips(int32_t index, int64_t bytes, int32_t count) override {
        Server& server = servers_.at(static_cast<size_t>(index));
        if (bytes > kBulkBytes) {
            return invalid_argument(
                fmt::format("round trips of {} bytes, expected up to {}", bytes, kBulkBytes));
        }
        std::vector<double> times;
        for (int32_t i = 0; i < count; ++i) {
            const TimePoint begin = now();
            K3POD_TRY(send(index, LinkKind::kEcho, bytes));
            K3POD_TRY(wait_until(server, [&] { return server.num_answered == server.num_sent; }));
            times.push_back(std::chrono::duration<double, std::micro>(now() - begin).count());
        }
        return times;
    }

    Result<std::vector<double>> bandwidth(std::span<const int32_t> indices,
                                          Nanoseconds duration) override {
        const TimePoint begin = now();
        std::vector<uint64_t> before;
        for (const int32_t i : indices) before.push_back(at(i).num_answered);
        while (now() - begin < duration) {
            for (const int32_t i : indices) K3POD_TRY(fill_window(i));
            transport_->progress();
        }
        const double seconds = to_seconds(now() - begin);
        std::vector<double> rates;
        for (size_t i = 0; i < indices.size(); ++i) {
            const auto arrived = static_cast<double>(at(indices[i]).num_answered - before[i]);
            rates.push_back(arrived * static_cast<double>(kBulkBytes) / seconds);
        }
        for (const int32_t i : indices) {
            Server& server = at(i);
            K3POD_TRY(wait_until(server, [&] { return server.num_answered == server.num_sent; }));
        }
        return rates;
    }

  private:
    Server& at(int32_t index) { return servers_.at(static_cast<size_t>(index)); }

    Status fill_window(int32_t index) {
        Server& server = at(index);
        while (server.num_sent - server.num_answered < kWindow) {
            K3POD_TRY(send(index, LinkKind::kBulk, kBulkBytes));
        }
        return server.failed;
    }

    // The header of a message lies in a ring of the server's window: the message that had it before
    // was answered, so its bytes have left.
    Status send(int32_t index, LinkKind kind, int64_t bytes) {
        Server& server = at(index);
        const size_t slot =
            static_cast<size_t>(index) * kWindow + static_cast<size_t>(server.num_sent % kWindow);
        headers_[slot] = {
            .kind = kind, .server = static_cast<uint32_t>(index), .number = server.num_sent};
        K3POD_TRY(transport_->send(server.peer, std::as_bytes(std::span(&headers_[slot], 1)),
                                   std::span(payload_).first(static_cast<size_t>(bytes)), slot));
        ++server.num_sent;
        return Status::ok();
    }

    template <class Condition>
    Status wait_until(Server& server, Condition condition) {
        const TimePoint begin = now();
        for (int polls = 1; !condition(); ++polls) {
            if (!server.failed) return server.failed;
            if (transport_->progress() > 0) continue;
            if (polls % kPollsPerYield != 0) continue;
            if (now() - begin > kSilence) {
                return deadline_exceeded(fmt::format(
                    "{} has not answered over {} within {:.0f} s; does k3pod fabric serve run "
                    "there, and do both ends name the same rail?",
                    server.name, transport_->name(), to_seconds(kSilence)));
            }
            std::this_thread::yield();
        }
        return Status::ok();
    }

    void on_message(std::span<const std::byte> bytes, std::span<const std::byte>) override {
        const auto header = read_link_header(bytes);
        const bool is_ours = header && header->server < servers_.size();
        if (is_ours && header->kind == LinkKind::kAnswer) ++servers_[header->server].num_answered;
    }
    void on_sent(uint64_t) override {}
    void on_peer_failed(PeerId peer, const Status& why) override {
        const auto server = std::ranges::find(servers_, peer, &Server::peer);
        if (server != servers_.end()) server->failed = why.with_context(server->name);
    }

    std::vector<Server> servers_;
    std::vector<LinkHeader> headers_;
    std::vector<std::byte> payload_;
    std::unique_ptr<Transport> transport_;  // Last: it may read the buffers above.
};

}  // namespace
}  // namespace fabric

Result<std::unique_ptr<LinkProbe>> LinkProbe::create(const MakeTransport& make_transport) {
    auto probe = std::make_unique<fabric::Probe>();
    K3POD_TRY(probe->open(make_transport));
    return std::unique_ptr<LinkProbe>(std::move(probe));
}

}  // namespace k3pod

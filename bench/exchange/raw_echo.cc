#include "bench/exchange/raw_echo.h"

#include <chrono>
#include <cstring>
#include <memory>

#include "bench/support/cores.h"
#include "bench/support/forked.h"
#include "bench/support/or_exit.h"
#include "k3pod/wire/codec.h"

namespace k3pod::bench {
namespace {

constexpr int kStationCore = 0;
constexpr int kServerCore = 1;
constexpr int kSlots = 4;  // replies that may be on their way at once, per server

struct Slot {
    wire::FrameHeader header;
    std::vector<std::byte> payload = std::vector<std::byte>(kRowBytes);
};

class Endpoint : public TransportHandler {
  public:
    explicit Endpoint(TransportKind kind)
        : transport_(value_or_exit(make_ucx_transport({.kind = kind}, *this))) {}

    Transport& transport() { return *transport_; }
    void on_peer_failed(PeerId /*peer*/, const Status& why) override { ok_or_exit(why); }

  private:
    std::unique_ptr<Transport> transport_;
};

// Copies each frame out, as an expert server must before it computes, and sends it back.
class EchoServer final : public Endpoint {
  public:
    using Endpoint::Endpoint;
    void connect(const std::vector<std::byte>& station) {
        station_ = value_or_exit(transport().connect(station, "station"));
    }
    void poll() {
        transport().progress();
        for (; num_sent_ < num_received_; ++num_sent_) {
            Slot& slot = slots_[num_sent_ % kSlots];
            ok_or_exit(transport().send(station_, std::as_bytes(std::span(&slot.header, 1)),
                                        slot.payload, 0));
        }
    }
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        Slot& slot = slots_[num_received_++ % kSlots];
        std::memcpy(&slot.header, header.data(), header.size());
        std::memcpy(slot.payload.data(), payload.data(), payload.size());
    }
    void on_sent(uint64_t /*token*/) override {}

  private:
    Slot slots_[kSlots];
    uint64_t num_received_ = 0;
    uint64_t num_sent_ = 0;
    PeerId station_ = kNoPeer;
};

class Station final : public Endpoint {
  public:
    using Endpoint::Endpoint;
    void connect(const std::vector<std::byte>& server) {
        peers_.push_back(value_or_exit(transport().connect(server, "server")));
        requests_.emplace_back();
        replies_.emplace_back(kRowBytes);
    }
    // Microseconds of one exchange with all servers.
    double exchange() {
        const auto start = std::chrono::steady_clock::now();
        ++step_;
        num_replies_ = 0;
        for (size_t i = 0; i < peers_.size(); ++i) {
            Slot& request = requests_[i];
            request.header.step = step_;
            request.header.node = static_cast<uint16_t>(i);
            ok_or_exit(transport().send(peers_[i], std::as_bytes(std::span(&request.header, 1)),
                                        request.payload, i));
        }
        while (num_replies_ < peers_.size() || num_sent_ < step_ * peers_.size()) {
            transport().progress();
        }
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - start;
        return took.count();
    }
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        wire::FrameHeader reply;
        std::memcpy(&reply, header.data(), sizeof(reply));
        if (reply.step != step_) ok_or_exit(internal_error("a reply of another exchange"));
        std::memcpy(replies_[reply.node].data(), payload.data(), payload.size());
        ++num_replies_;
    }
    void on_sent(uint64_t /*token*/) override { ++num_sent_; }

  private:
    std::vector<PeerId> peers_;
    std::vector<Slot> requests_;
    std::vector<std::vector<std::byte>> replies_;
    uint64_t step_ = 0;
    uint64_t num_replies_ = 0;
    uint64_t num_sent_ = 0;
};

void run_servers(const Plan& plan, Line& line) {
    pin_to_core(kServerCore);
    const auto station = line.receive<std::byte>();
    std::vector<std::unique_ptr<EchoServer>> servers;
    for (int i = 0; i < plan.num_servers; ++i) {
        servers.push_back(std::make_unique<EchoServer>(plan.kind));
        servers.back()->connect(station);
        line.send(servers.back()->transport().local_address());
    }
    while (true) {
        for (const auto& server : servers) server->poll();
    }
}

void run_station(const Plan& plan, Line& line) {
    pin_to_core(kStationCore);
    Station station(plan.kind);
    line.send(station.transport().local_address());
    for (int i = 0; i < plan.num_servers; ++i) station.connect(line.receive<std::byte>());
    std::vector<double> samples(static_cast<size_t>(plan.rounds));
    for (int run = 0; run < plan.num_runs; ++run) {
        for (int i = 0; i < plan.rounds / 4; ++i) station.exchange();
        for (double& sample : samples) sample = station.exchange();
        const Percentiles percentiles = percentiles_of(samples);
        line.send(&percentiles, sizeof(percentiles));
    }
}

}  // namespace

std::vector<Percentiles> measure_raw(const Plan& plan) {
    Forked station([&](Line& line) { run_station(plan, line); });
    Forked servers([&](Line& line) { run_servers(plan, line); });
    servers.line().send(station.line().receive<std::byte>());
    for (int i = 0; i < plan.num_servers; ++i) {
        station.line().send(servers.line().receive<std::byte>());
    }
    std::vector<Percentiles> runs;
    for (int i = 0; i < plan.num_runs; ++i) {
        runs.push_back(station.line().receive<Percentiles>().front());
    }
    return runs;
}

}  // namespace k3pod::bench

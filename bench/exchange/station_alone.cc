#include "bench/exchange/station_alone.h"

#include <cstring>

#include "bench/exchange/row_exchange.h"
#include "k3pod/wire/codec.h"

namespace k3pod::bench {
namespace {

// A request comes back as its own reply from the next progress(). The payload's checksum is made
// once, so only the station's two are in the figure.
class InstantWire final : public Transport {
  public:
    explicit InstantWire(TransportHandler& handler) : handler_(handler) {}

    std::vector<std::byte> local_address() const override { return {std::byte{0}}; }
    std::string name() const override { return "instant"; }
    Result<PeerId> connect(std::span<const std::byte>, const std::string&) override {
        return num_peers_++;
    }
    void disconnect(PeerId) override {}
    Status send(PeerId, std::span<const std::byte> header, std::span<const std::byte>,
                uint64_t token) override {
        Sent& sent = sent_.emplace_back();
        std::memcpy(&sent.header, header.data(), sizeof(sent.header));
        sent.token = token;
        return Status::ok();
    }
    int64_t max_message_bytes() const override { return 1 << 24; }
    int progress() override {
        answering_.swap(sent_);
        for (Sent& sent : answering_) {
            handler_.on_sent(sent.token);
            if (sent.header.kind == wire::FrameKind::kRequest) answer(sent.header);
        }
        const auto num_events = static_cast<int>(answering_.size());
        answering_.clear();
        return num_events;
    }
    void wait(Nanoseconds) override {}
    void wake() override {}

  private:
    struct Sent {
        wire::FrameHeader header;
        uint64_t token = 0;
    };

    void answer(wire::FrameHeader& header) {
        header.kind = wire::FrameKind::kReply;
        header.payload_bytes = kRowBytes;
        if ((header.flags & wire::kFlagPayloadChecked) != 0) header.payload_check = checksum_;
        wire::seal_header(header);
        handler_.on_message(std::as_bytes(std::span(&header, 1)), row_);
    }

    TransportHandler& handler_;
    const std::vector<std::byte> row_ = std::vector<std::byte>(kRowBytes);
    const uint32_t checksum_ = wire::payload_checksum(row_);
    PeerId num_peers_ = 0;
    std::vector<Sent> sent_, answering_;
};

}  // namespace

std::vector<Percentiles> measure_station_alone(const Plan& plan) {
    RowExchange station(plan, [](TransportHandler& handler) -> Result<std::unique_ptr<Transport>> {
        return std::unique_ptr<Transport>(std::make_unique<InstantWire>(handler));
    });
    for (int i = 0; i < plan.num_servers; ++i) station.attach(station.local_address());
    std::vector<Percentiles> runs;
    station.measure([&](const Percentiles& run) { runs.push_back(run); });
    return runs;
}

}  // namespace k3pod::bench

#include "exchange/probe/observed_transport.h"

#include <cstring>
#include <utility>

namespace k3pod::exchange {
namespace {

wire::FrameHeader header_of(std::span<const std::byte> bytes) {
    wire::FrameHeader header;
    if (bytes.size() == sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
    return header;
}

class ObservedTransport final : public Transport, private TransportHandler {
  public:
    ObservedTransport(TransportHandler& handler, FrameObserver& observer)
        : handler_(handler), observer_(observer) {}

    Status open(const MakeTransport& make_inner) {
        K3POD_ASSIGN(inner_, make_inner(*this));
        return Status::ok();
    }

    std::vector<std::byte> local_address() const override { return inner_->local_address(); }
    std::string name() const override { return inner_->name(); }
    Result<PeerId> connect(std::span<const std::byte> address,
                           const std::string& peer_name) override {
        return inner_->connect(address, peer_name);
    }
    void disconnect(PeerId peer) override { inner_->disconnect(peer); }
    Status send(PeerId peer, std::span<const std::byte> header, std::span<const std::byte> payload,
                uint64_t token) override {
        observer_.on_send(header_of(header));
        return inner_->send(peer, header, payload, token);
    }
    int64_t max_message_bytes() const override { return inner_->max_message_bytes(); }
    int progress() override { return inner_->progress(); }
    void wait(Nanoseconds timeout) override { inner_->wait(timeout); }
    void wake() override { inner_->wake(); }

  private:
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        observer_.on_receive(header_of(header));
        handler_.on_message(header, payload);
    }
    void on_sent(uint64_t token) override { handler_.on_sent(token); }
    void on_peer_failed(PeerId peer, const Status& why) override {
        handler_.on_peer_failed(peer, why);
    }

    TransportHandler& handler_;
    FrameObserver& observer_;
    std::unique_ptr<Transport> inner_;
};

}  // namespace

MakeTransport observed(MakeTransport make_inner, FrameObserver& observer) {
    return [make_inner = std::move(make_inner),
            &observer](TransportHandler& handler) -> Result<std::unique_ptr<Transport>> {
        auto transport = std::make_unique<ObservedTransport>(handler, observer);
        K3POD_TRY(transport->open(make_inner));
        return std::unique_ptr<Transport>(std::move(transport));
    };
}

}  // namespace k3pod::exchange

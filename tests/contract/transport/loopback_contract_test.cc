#include <thread>
#include "tests/contract/transport_contract.h"

namespace k3pod {
namespace {

// Dies by destruction. Echoes nothing by itself: in one process it has no thread of its own, so its
// handler answers from inside the progress() of a helper thread.
class LoopbackMortalPeer final : public MortalPeer {
  public:
    LoopbackMortalPeer(std::shared_ptr<LoopbackNetwork> network, const Bytes& station_address)
        : transport_(make_loopback_transport(std::move(network), recorder_)),
          station_(*transport_->connect(station_address, "station")),
          thread_([this](std::stop_token stop) { echo(stop); }) {}
    ~LoopbackMortalPeer() override { kill(); }

    Bytes address() override { return address_; }
    void kill() override {
        if (!thread_.joinable()) return;
        thread_.request_stop();
        transport_->wake();
        thread_.join();
        transport_.reset();
    }

  private:
    void echo(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            if (transport_->progress() == 0) transport_->wait(std::chrono::seconds(1));
            for (const Recorder::Message& message : recorder_.messages) {
                (void)transport_->send(station_, message.header, message.payload, 0).is_ok();
            }
            recorder_.messages.clear();
        }
    }

    Recorder recorder_;
    std::unique_ptr<Transport> transport_;
    const Bytes address_ = transport_->local_address();
    PeerId station_;
    std::jthread thread_;
};

class LoopbackWorld final : public TransportWorld {
  public:
    Result<std::unique_ptr<Transport>> make(TransportHandler& handler) override {
        return make_loopback_transport(network_, handler);
    }
    std::unique_ptr<MortalPeer> make_mortal_peer(const Bytes& station_address) override {
        return std::make_unique<LoopbackMortalPeer>(network_, station_address);
    }

  private:
    std::shared_ptr<LoopbackNetwork> network_ = make_loopback_network();
};

INSTANTIATE_TEST_SUITE_P(Loopback, TransportContract,
                         ::testing::Values(TransportCase{
                             "loopback", [] { return std::make_unique<LoopbackWorld>(); }}),
                         case_name);

}  // namespace
}  // namespace k3pod

// Every transport under the same contract.

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/contract/transport_contract.h"
#include "tests/support/hex.h"
#include "tests/support/transport_child.h"

namespace k3pod {
namespace {

// Dies by destruction; a thread of its own drives it until then.
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

class ProcessMortalPeer final : public MortalPeer {
  public:
    ProcessMortalPeer(const std::string& kind, const Bytes& station_address)
        : child_({K3POD_BINARY_DIR "/tests/contract/transport/mortal_peer", kind,
                  to_hex(station_address)}),
          address_(from_hex(child_.read_line())) {}

    Bytes address() override { return address_; }
    void kill() override { child_.kill_and_reap(); }

  private:
    TransportChild child_;
    Bytes address_;
};

class UcxWorld final : public TransportWorld {
  public:
    explicit UcxWorld(TransportKind kind) : kind_(kind) {}

    Result<std::unique_ptr<Transport>> make(TransportHandler& handler) override {
        return make_ucx_transport({.kind = kind_}, handler);
    }
    std::unique_ptr<MortalPeer> make_mortal_peer(const Bytes& station_address) override {
        return std::make_unique<ProcessMortalPeer>(kind_ == TransportKind::kShm ? "shm" : "tcp",
                                                   station_address);
    }

  private:
    TransportKind kind_;
};

// The decorator with a plan that does nothing must be as good as what it wraps.
class FaultlessWorld final : public TransportWorld {
  public:
    explicit FaultlessWorld(std::unique_ptr<TransportWorld> inner) : inner_(std::move(inner)) {}

    Result<std::unique_ptr<Transport>> make(TransportHandler& handler) override {
        return make_faulty_transport(
            {}, clock_, [this](TransportHandler& inner) { return inner_->make(inner); }, handler);
    }
    std::unique_ptr<MortalPeer> make_mortal_peer(const Bytes& station_address) override {
        return inner_->make_mortal_peer(station_address);
    }

  private:
    SteadyClock clock_;
    std::unique_ptr<TransportWorld> inner_;
};

template <class World, class... Args>
TransportCase make_case(const char* name, Args... args) {
    return {name, [=] { return std::make_unique<World>(args...); }};
}

TransportCase faultless(const TransportCase& inner) {
    return {"faulty_" + inner.name,
            [=] { return std::make_unique<FaultlessWorld>(inner.make_world()); }};
}

const TransportCase kLoopback = make_case<LoopbackWorld>("loopback");
const TransportCase kShm = make_case<UcxWorld>("shm", TransportKind::kShm);
const TransportCase kTcp = make_case<UcxWorld>("tcp", TransportKind::kTcp);

INSTANTIATE_TEST_SUITE_P(All, TransportContract,
                         ::testing::Values(kLoopback, kShm, kTcp, faultless(kLoopback),
                                           faultless(kTcp)),
                         case_name);

}  // namespace
}  // namespace k3pod

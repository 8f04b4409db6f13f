#include "tests/contract/transport_contract.h"
#include "tests/support/hex.h"
#include "tests/support/transport_child.h"

namespace k3pod {
namespace {

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

INSTANTIATE_TEST_SUITE_P(
    Ucx, TransportContract,
    ::testing::Values(
        TransportCase{"shm", [] { return std::make_unique<UcxWorld>(TransportKind::kShm); }},
        TransportCase{"tcp", [] { return std::make_unique<UcxWorld>(TransportKind::kTcp); }}),
    case_name);

}  // namespace
}  // namespace k3pod

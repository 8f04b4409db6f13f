// The exchange as an ExpertPort: over loopback, over UCX, whole and sliced, with the station's own
// tier and without.

#include "tests/contract/exchange/expert_port_contract.h"
#include "tests/support/exchange_pod.h"

namespace k3pod::testing {
namespace {

class PodPort final : public PortUnderTest {
  public:
    explicit PodPort(const ExchangePodOptions& options) : pod_(options) {}
    ExpertPort& port() override { return pod_.client(); }
    Status status() const override { return pod_.status(); }

  private:
    ExchangePod pod_;
};

ExpertPortParty party(const std::string& name, std::vector<std::string> holders, bool is_sliced,
                      void (*change)(ExchangePodOptions&) = nullptr) {
    ExchangePodOptions options;
    options.holders = std::move(holders);
    options.is_sliced = is_sliced;
    if (change != nullptr) change(options);
    return {name, [options] { return std::make_unique<PodPort>(options); }};
}

// Processes share two cores on a build machine: what is tested here is not how fast a reply is.
void be_patient(ExchangePodOptions& options) {
    options.exchange.frame_deadline = std::chrono::seconds(10);
    options.exchange.heartbeats_missed = 100;
}

void use_ucx(ExchangePodOptions& options, TransportKind kind) {
    be_patient(options);
    options.transport = [kind](const std::string&) -> MakeTransport {
        return [kind](TransportHandler& handler) {
            return make_ucx_transport(UcxOptions{.kind = kind, .device = {}}, handler);
        };
    };
}

INSTANTIATE_TEST_SUITE_P(
    Loopback, ExpertPortContract,
    ::testing::Values(
        party("station_alone", {"station"}, false),
        party("one_server", {"spark-1"}, false, be_patient),
        party("two_servers_whole", {"spark-1", "spark-2"}, false, be_patient),
        party("three_servers_whole", {"spark-1", "spark-2", "spark-3"}, false, be_patient),
        party("four_servers_sliced", {"spark-1", "spark-2", "spark-3", "spark-4"}, true,
              be_patient),
        party("station_and_servers", {"spark-1", "station", "spark-2"}, false, be_patient),
        party("station_and_server_sliced", {"station", "spark-1"}, true, be_patient),
        party("f32_replies", {"spark-1", "spark-2"}, true,
              [](ExchangePodOptions& options) {
                  be_patient(options);
                  options.exchange.reply_f32 = true;
              }),
        party("without_payload_checks", {"spark-1", "spark-2"}, true,
              [](ExchangePodOptions& options) {
                  be_patient(options);
                  options.exchange.check_payload = false;
              })),
    expert_port_party_name);

INSTANTIATE_TEST_SUITE_P(Ucx, ExpertPortContract,
                         ::testing::Values(party("tcp", {"spark-1", "spark-2"}, true,
                                                 [](ExchangePodOptions& options) {
                                                     use_ucx(options, TransportKind::kTcp);
                                                 }),
                                           party("shm", {"spark-1", "spark-2"}, true,
                                                 [](ExchangePodOptions& options) {
                                                     use_ucx(options, TransportKind::kShm);
                                                 })),
                         expert_port_party_name);

}  // namespace
}  // namespace k3pod::testing

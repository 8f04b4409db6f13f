#pragma once
// A station and expert servers in one process, over any transports, with fake experts.

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "k3pod/exchange/exchange.h"
#include "k3pod/metrics/metrics.h"
#include "tests/support/fake_experts.h"

namespace k3pod::testing {

struct ExchangePodOptions {
    ExchangeOptions exchange;
    std::vector<std::string> holders = {"spark-1", "spark-2"};  // "station": its own tier
    bool is_sliced = false;
    // Transport of one node; empty: one loopback network.
    std::function<MakeTransport(const std::string& node)> transport;
    // Work of one holder; empty: fake_experts().
    std::function<FrameWork(const Placement& placement, size_t holder)> work;

    ExchangePodOptions() { exchange.limits = kFakeLimits; }
};

class ExchangePod {
  public:
    // Builds everything and attaches every server. A test fails by status().
    explicit ExchangePod(const ExchangePodOptions& options);
    ~ExchangePod();

    const Status& status() const { return status_; }
    ExchangeClient& client() { return *client_; }
    ExchangeServer& server(const std::string& node) { return *servers_.at(node); }
    const Placement& placement() const { return placement_; }

    // Takes the node away, as a kill would.
    void kill(const std::string& node) { servers_.erase(node); }
    // A new server with a new session; attach() hands it to the station.
    Status start(const std::string& node);
    Status attach(const std::string& node);

    // Dispatch and combine of one step.
    Result<std::vector<float>> run(const FakeStep& step);
    // The reason when the node was reported down; ok when it was not within ten seconds.
    Status wait_for_down(const std::string& node);
    // Of the station's registry, 0 while it is not there.
    double station_metric(const std::string& name, const Labels& labels);
    MetricsRegistry& metrics(const std::string& node) { return registries_[node]; }

  private:
    MakeTransport transport_of(const std::string& node);
    FrameWork work_of(size_t holder);

    const ExchangePodOptions options_;
    const Placement placement_;
    SteadyClock clock_;
    std::shared_ptr<LoopbackNetwork> network_ = make_loopback_network();
    std::map<std::string, MetricsRegistry> registries_;
    Status status_;
    uint64_t next_session_ = 1000;
    std::map<std::string, uint64_t> sessions_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, Status> down_;

    std::unique_ptr<ExchangeClient> client_;
    std::map<std::string, std::unique_ptr<ExchangeServer>> servers_;
};

}  // namespace k3pod::testing

#pragma once
// The demo model's experts behind an exchange whose wire and memories are as slow as a test wants:
// servers that read at a given rate, replies that arrive late by a given time.

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "k3pod/exchange/exchange.h"
#include "k3pod/experts/expert_store.h"
#include "k3pod/metrics/metrics.h"
#include "k3pod/placement/placement.h"

namespace k3pod::testing {

// The shards of every holder of a placement, loaded once.
struct HeldExperts {
    Placement placement;
    std::vector<std::shared_ptr<const ExpertStore>> stores;  // [holders]
    static HeldExperts load(PlacementMode mode, int32_t num_holders);
};

class ThrottledPod {
  public:
    // `bytes_per_s` is what each server reads at; each of its replies leaves `delay` late. Borrows
    // `held`.
    ThrottledPod(const HeldExperts& held, double bytes_per_s, Nanoseconds delay);
    ~ThrottledPod();

    const Status& status() const { return status_; }
    ExchangeClient& port() { return *client_; }

  private:
    Status start(size_t holder, double bytes_per_s, Nanoseconds delay);

    const HeldExperts& held_;
    SteadyClock clock_;
    std::shared_ptr<LoopbackNetwork> network_ = make_loopback_network();
    std::map<std::string, MetricsRegistry> registries_;
    ExchangeOptions options_;
    Status status_;
    std::unique_ptr<ExchangeClient> client_;
    std::vector<std::unique_ptr<ExchangeServer>> servers_;
};

}  // namespace k3pod::testing

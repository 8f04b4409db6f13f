#pragma once
// An expert server's part in `[staging] source = "station"`: its shards come from the station, and
// from the shard cache. What has arrived outlives a session, so a load goes on where it broke off.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "k3pod/config/pod_config.h"
#include "k3pod/control/control.h"
#include "k3pod/exchange/staging.h"
#include "k3pod/experts/expert_tier.h"
#include "k3pod/metrics/metrics.h"

namespace k3pod {

class StagedTier {
  public:
    // Borrows all.
    static Result<std::unique_ptr<StagedTier>> create(const PodConfig& pod,
                                                      const ExpertConfig& node, const Clock& clock,
                                                      MetricsRegistry& metrics);

    // What a load tells while it runs.
    struct Watcher {
        std::function<void(const ServerReport& report)> report;  // phase, bytes, address
        std::function<bool()> goes_on;  // false: the session is over, end with kCancelled
    };
    // The tier of an assignment with an offer. kDataLoss, kInvalidArgument, kResourceExhausted:
    // what cannot be mended by asking again.
    Result<std::unique_ptr<ExpertTier>> load(const Assignment& assignment,
                                             const ModelConfig& config, const Watcher& watcher);

  private:
    StagedTier(const PodConfig& pod, const ExpertConfig& node, MetricsRegistry& metrics);
    Status begin(const Assignment& assignment, const ModelConfig& config);

    const PodConfig& pod_;
    const ExpertConfig& node_;
    Counter& cached_shards_;
    std::unique_ptr<StageReceiver> receiver_;
    // A load that has begun and not ended.
    std::unique_ptr<StagedLoad> load_;
    std::vector<Shard> shards_;
    std::vector<uint64_t> stamps_;
};

}  // namespace k3pod

#pragma once
// What a node says about the experts it holds once they are loaded: in its log and in metrics.

#include <cstdint>
#include <string>

#include "k3pod/experts/expert_tier.h"
#include "k3pod/metrics/metrics.h"

namespace k3pod {

// "256 shards (256 mxfp4, 0 kept as nvfp4), 4214784 bytes"
std::string describe_load(const ExpertTier& tier);

// Gauges of the shards in memory. Borrows the registry.
class ExpertResidence {
  public:
    explicit ExpertResidence(MetricsRegistry& metrics);
    void show(const ExpertTier& tier);
    int64_t bytes() const { return static_cast<int64_t>(bytes_.value()); }

  private:
    Gauge& bytes_;
    Gauge& mxfp4_shards_;
    Gauge& nvfp4_shards_;
};

}  // namespace k3pod

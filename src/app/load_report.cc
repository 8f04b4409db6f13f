#include "load_report.h"

#include <fmt/format.h>

namespace k3pod {
namespace {

constexpr const char* kShards = "k3pod_experts_resident_shards";
constexpr const char* kShardsHelp = "Expert shards in memory by format";

int64_t num_mxfp4_shards(const ExpertTier& tier) {
    return tier.num_shards() - tier.num_nvfp4_shards();
}

}  // namespace

std::string describe_load(const ExpertTier& tier) {
    return fmt::format("{} shards ({} mxfp4, {} kept as nvfp4), {} bytes", tier.num_shards(),
                       num_mxfp4_shards(tier), tier.num_nvfp4_shards(), tier.size_bytes());
}

ExpertResidence::ExpertResidence(MetricsRegistry& metrics)
    : bytes_(metrics.gauge("k3pod_experts_resident_bytes", "Bytes of expert shards in memory")),
      mxfp4_shards_(metrics.gauge(kShards, kShardsHelp, {{"format", "mxfp4"}})),
      nvfp4_shards_(metrics.gauge(kShards, kShardsHelp, {{"format", "nvfp4"}})) {}

void ExpertResidence::show(const ExpertTier& tier) {
    bytes_.set(static_cast<double>(tier.size_bytes()));
    mxfp4_shards_.set(static_cast<double>(num_mxfp4_shards(tier)));
    nvfp4_shards_.set(static_cast<double>(tier.num_nvfp4_shards()));
}

}  // namespace k3pod

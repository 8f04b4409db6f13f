#include "load_report.h"

#include <fmt/format.h>

namespace k3pod {
namespace {

constexpr const char* kShards = "k3pod_experts_resident_shards";
constexpr const char* kShardsHelp = "Expert shards in memory by format";

int64_t num_mxfp4_shards(const ExpertStore& store) {
    return store.num_shards() - store.num_nvfp4_shards();
}

}  // namespace

std::string describe_load(const ExpertStore& store) {
    return fmt::format("{} shards ({} mxfp4, {} kept as nvfp4), {} bytes", store.num_shards(),
                       num_mxfp4_shards(store), store.num_nvfp4_shards(), store.size_bytes());
}

ExpertResidence::ExpertResidence(MetricsRegistry& metrics)
    : bytes_(metrics.gauge("k3pod_experts_resident_bytes", "Bytes of expert shards in memory")),
      mxfp4_shards_(metrics.gauge(kShards, kShardsHelp, {{"format", "mxfp4"}})),
      nvfp4_shards_(metrics.gauge(kShards, kShardsHelp, {{"format", "nvfp4"}})) {}

void ExpertResidence::show(const ExpertStore& store) {
    bytes_.set(static_cast<double>(store.size_bytes()));
    mxfp4_shards_.set(static_cast<double>(num_mxfp4_shards(store)));
    nvfp4_shards_.set(static_cast<double>(store.num_nvfp4_shards()));
}

}  // namespace k3pod

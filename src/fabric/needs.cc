#include <algorithm>

#include "k3pod/fabric/check.h"

namespace k3pod {
namespace {

// What UCX registers for its receive queue of 512 segments of 64 KiB, and as much for our buffers.
constexpr int64_t kLockedBytes = 64 << 20;

// The slowest port that a cable of the node ends at.
int64_t port_rate_of(const FabricConfig& fabric, const std::string& node) {
    int64_t rate = 0;
    for (const CableConfig& cable : fabric.cables) {
        if (cable.from != node && cable.to != node) continue;
        const std::string& end = cable.from == node ? cable.to : cable.from;
        for (const SwitchConfig& config : fabric.switches) {
            if (config.name != end) continue;
            rate = rate == 0 ? config.port_bits_per_s : std::min(rate, config.port_bits_per_s);
        }
    }
    return rate;
}

// Of experts in the memory that the operating system counts; a station's GPU memory is not.
int64_t station_bytes(const StationConfig& station) {
    if (station.host.is_given()) return station.host.budget_bytes();
    return station.backend == Backend::kCuda ? 0 : station.expert_budget_bytes;
}

}  // namespace

NodeNeeds needs_of(const PodConfig& pod, const std::string& node, int64_t taken_bytes) {
    NodeNeeds needs;
    needs.node = node;
    needs.transport = pod.exchange.transport;
    needs.port_rate_bits_per_s = port_rate_of(pod.fabric, node);
    needs.locked_bytes = needs.transport == TransportName::kRc ? kLockedBytes : 0;
    const ExpertConfig* expert = pod.find_expert(node);
    const Backend backend = expert != nullptr ? expert->backend : pod.station.backend;
    needs.device = expert != nullptr ? expert->device : pod.station_device;
    needs.needs_gpu = backend == Backend::kCuda;
    needs.gpu_clock_mhz = expert != nullptr ? expert->gpu_clock_mhz : pod.station.gpu_clock_mhz;
    const int64_t planned = expert != nullptr ? expert->budget_bytes() : station_bytes(pod.station);
    needs.memory_bytes = std::max<int64_t>(0, planned - taken_bytes);
    for (const ExpertConfig& other : pod.experts) {
        if (other.name != node) needs.peers.push_back({other.name, other.control});
    }
    return needs;
}

}  // namespace k3pod

#pragma once
// An expert server's endpoint of the exchange. Its buffers follow from the model, which a node
// without a checkpoint learns from the station.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "k3pod/config/pod_config.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/weights/model_config.h"

namespace k3pod {

// Any thread.
class NodeExchange {
  public:
    // Borrows all.
    NodeExchange(const PodConfig& pod, const ExpertConfig& node, const Clock& clock,
                 MetricsRegistry& metrics)
        : pod_(pod), node_(node), clock_(clock), metrics_(metrics) {}

    // Makes the endpoint for frames of this model, unless it is there already. Before the rest.
    Status prepare(const ModelConfig& config);
    Status open_session(const Assignment& assignment, FrameWork work);
    void close_session(uint64_t session);
    std::vector<std::byte> local_address() const;
    // 0 before prepare().
    uint64_t num_frames() const;

  private:
    std::shared_ptr<ExchangeServer> server() const;

    const PodConfig& pod_;
    const ExpertConfig& node_;
    const Clock& clock_;
    MetricsRegistry& metrics_;

    mutable std::mutex mutex_;
    std::shared_ptr<ExchangeServer> server_;  // shared with calls under way
    wire::FrameLimits limits_;                // that it was made for
};

}  // namespace k3pod

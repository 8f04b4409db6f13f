#pragma once
// The station's part in `[staging] source = "station"`: what it offers to each expert server, and
// the sending.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3pod/config/pod_config.h"
#include "k3pod/control/control.h"
#include "k3pod/exchange/staging.h"
#include "model_folder.h"

namespace k3pod {

class Stager {
  public:
    // Borrows model, clock and metrics. `failed` as StageSender's.
    static Result<std::unique_ptr<Stager>> create(const PodConfig& pod, const ModelFolder& model,
                                                  const Clock& clock, MetricsRegistry& metrics,
                                                  StageFailed failed);

    // Before the node is dialled. The shards are those of its assignment.
    StagingOffer offer(const std::string& node, std::span<const Shard> shards);
    // The node of an offer listens there. Any thread.
    void attach(const std::string& node, std::span<const std::byte> address, uint64_t session);
    void detach(const std::string& node) { sender_->detach(node); }
    void complete(const std::string& node) { sender_->complete(node); }

  private:
    Stager(const ModelFolder& model, std::string config_text)
        : model_(model),
          config_text_(std::move(config_text)),
          source_(make_checkpoint_source(model.checkpoint, model.config, model.release)) {}

    const ModelFolder& model_;
    const std::string config_text_;
    const std::unique_ptr<ShardSource> source_;
    std::map<std::string, std::vector<Shard>> shards_;
    std::unique_ptr<StageSender> sender_;
};

}  // namespace k3pod

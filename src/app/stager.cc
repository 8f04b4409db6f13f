#include "stager.h"

#include <utility>

#include "k3pod/base/file.h"

namespace k3pod {

Result<std::unique_ptr<Stager>> Stager::create(const PodConfig& pod, const ModelFolder& model,
                                               const Clock& clock, MetricsRegistry& metrics,
                                               StageFailed failed) {
    K3POD_ASSIGN(std::string text, read_text_file(pod.model / "config.json"));
    std::unique_ptr<Stager> stager(new Stager(model, std::move(text)));
    StageOptions options;
    options.buffer_bytes = pod.staging.buffer_bytes;
    options.num_readers = pod.staging.readers;
    K3POD_ASSIGN(stager->sender_,
                 StageSender::create(options, *stager->source_,
                                     make_transport_factory(pod, pod.station_device), clock,
                                     metrics, std::move(failed)));
    return stager;
}

StagingOffer Stager::offer(const std::string& node, std::span<const Shard> shards) {
    shards_[node].assign(shards.begin(), shards.end());
    StagingOffer offer{.address = sender_->local_address(),
                       .model_config = config_text_,
                       .release = static_cast<uint32_t>(model_.release),
                       .stamps = {}};
    offer.stamps.reserve(shards.size());
    for (const Shard& shard : shards) {
        offer.stamps.push_back(shard_stamp(model_.checkpoint, model_.fingerprint, shard));
    }
    return offer;
}

void Stager::attach(const std::string& node, std::span<const std::byte> address, uint64_t session) {
    const auto shards = shards_.find(node);
    if (shards != shards_.end()) sender_->attach(node, address, session, shards->second);
}

}  // namespace k3pod

#include "k3pod/experts/expert_store.h"

#include <utility>
#include <vector>

#include "experts/load_shards.h"

namespace k3pod {

struct ExpertStore::Impl {
    explicit Impl(const ModelConfig& model)
        : config(model),
          by_expert(static_cast<size_t>(model.num_moe_layers()) *
                    static_cast<size_t>(model.num_experts)) {}

    std::vector<ExpertShardWeights>& of(int32_t layer, int32_t expert) {
        const int64_t moe_layer = layer - config.first_dense_layers;
        return by_expert[static_cast<size_t>(moe_layer * config.num_experts + expert)];
    }

    ModelConfig config;
    std::vector<std::vector<ExpertShardWeights>> by_expert;  // [MoE layers, E], each by begin
    int64_t size_bytes = 0;
    int64_t num_shards = 0;
    int64_t num_nvfp4_shards = 0;
};

ExpertStore::ExpertStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExpertStore::~ExpertStore() = default;

Result<std::unique_ptr<ExpertStore>> ExpertStore::load(const Checkpoint& checkpoint,
                                                       const ModelConfig& config, Release release,
                                                       std::span<const Shard> shards,
                                                       const LoadProgress& progress) {
    auto impl = std::make_unique<Impl>(config);
    K3POD_TRY(load_shards(checkpoint, config, release, shards, progress,
                          [&](const Shard& shard, ExpertShardWeights weights) {
                              impl->size_bytes += weights.size_bytes();
                              impl->num_shards += 1;
                              if (weights.format() == WeightFormat::kNvfp4) {
                                  impl->num_nvfp4_shards += 1;
                              }
                              impl->of(shard.layer, shard.expert).push_back(std::move(weights));
                              return Status::ok();
                          }));
    return std::unique_ptr<ExpertStore>(new ExpertStore(std::move(impl)));
}

std::span<const ExpertShardWeights> ExpertStore::find(int32_t layer, int32_t expert) const {
    const ModelConfig& config = impl_->config;
    const bool is_known = config.is_moe_layer(layer) && layer < config.num_layers && expert >= 0 &&
                          expert < config.num_experts;
    if (!is_known) return {};
    return impl_->of(layer, expert);
}

int64_t ExpertStore::size_bytes() const {
    return impl_->size_bytes;
}
int64_t ExpertStore::num_shards() const {
    return impl_->num_shards;
}
int64_t ExpertStore::num_nvfp4_shards() const {
    return impl_->num_nvfp4_shards;
}
const ModelConfig& ExpertStore::config() const {
    return impl_->config;
}

}  // namespace k3pod

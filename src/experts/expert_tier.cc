#include "k3pod/experts/expert_tier.h"

#include <utility>

#include "experts/cuda/cuda_tier.h"
#include "experts/load_shards.h"
#include "k3pod/base/check.h"
#include "k3pod/experts/expert_store.h"
#include "k3pod/experts/tier_builder.h"

namespace k3pod {
namespace {

class CpuTier final : public ExpertTier {
  public:
    CpuTier(std::unique_ptr<ExpertStore> store, int32_t max_rows)
        : store_(std::move(store)), runner_(*store_, max_rows) {}

    Status run(int32_t layer, int32_t rows, std::span<const Bf16> latents,
               std::span<const wire::WireEntry> entries, std::span<float> out) override {
        return runner_.run(layer, rows, latents, entries, out);
    }
    int64_t size_bytes() const override { return store_->size_bytes(); }
    int64_t num_shards() const override { return store_->num_shards(); }
    int64_t num_nvfp4_shards() const override { return store_->num_nvfp4_shards(); }

  private:
    std::unique_ptr<ExpertStore> store_;
    ExpertRunner runner_;
};

class CpuBuilder final : public TierBuilder {
  public:
    CpuBuilder(std::unique_ptr<ExpertStoreBuilder> store, int32_t max_rows)
        : store_(std::move(store)), max_rows_(max_rows) {}

    Result<std::span<std::byte>> room(size_t shard, int64_t packed_bytes) override {
        return store_->room(shard, packed_bytes);
    }
    Status finish(size_t shard) override { return store_->finish(shard); }
    Result<std::unique_ptr<ExpertTier>> build() override {
        K3POD_ASSIGN(auto store, store_->build());
        return std::unique_ptr<ExpertTier>(std::make_unique<CpuTier>(std::move(store), max_rows_));
    }

  private:
    std::unique_ptr<ExpertStoreBuilder> store_;
    int32_t max_rows_;
};

}  // namespace

Result<std::unique_ptr<TierBuilder>> TierBuilder::create(Backend backend, const ModelConfig& config,
                                                         Release release,
                                                         std::span<const Shard> shards,
                                                         int32_t max_rows) {
    K3POD_CHECK(max_rows > 0, "a tier needs room for at least one row");
    if (backend == Backend::kCuda) return make_cuda_builder(config, release, shards, max_rows);
    K3POD_ASSIGN(auto store, ExpertStoreBuilder::create(config, release, shards));
    return std::unique_ptr<TierBuilder>(std::make_unique<CpuBuilder>(std::move(store), max_rows));
}

Result<std::unique_ptr<ExpertTier>> ExpertTier::load(Backend backend,
                                                     const ExpertTierSource& source,
                                                     int32_t max_rows,
                                                     const LoadProgress& progress) {
    K3POD_ASSIGN(const auto builder, TierBuilder::create(backend, source.config, source.release,
                                                         source.shards, max_rows));
    K3POD_TRY(load_shards(source.checkpoint, source.config, source.release, source.shards, progress,
                          *builder));
    return builder->build();
}

}  // namespace k3pod

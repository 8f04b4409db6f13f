#include "k3pod/experts/expert_tier.h"

#include <utility>

#include "experts/cuda/cuda_tier.h"
#include "k3pod/experts/expert_store.h"

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

}  // namespace

Result<std::unique_ptr<ExpertTier>> ExpertTier::load(Backend backend,
                                                     const ExpertTierSource& source,
                                                     int32_t max_rows,
                                                     const LoadProgress& progress) {
    if (backend == Backend::kCuda) return load_cuda_tier(source, max_rows, progress);
    K3POD_ASSIGN(auto store, ExpertStore::load(source.checkpoint, source.config, source.release,
                                               source.shards, progress));
    return std::unique_ptr<ExpertTier>(std::make_unique<CpuTier>(std::move(store), max_rows));
}

}  // namespace k3pod

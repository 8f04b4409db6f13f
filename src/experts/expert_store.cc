#include "k3pod/experts/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "k3pod/base/check.h"

namespace k3pod {
namespace {

std::string describe(const Shard& shard) {
    return fmt::format("shard of layer {} expert {} columns [{}, {})", shard.layer, shard.expert,
                       shard.begin, shard.end);
}

Status check_shard(const ModelConfig& config, const Shard& shard) {
    if (!config.is_moe_layer(shard.layer) || shard.layer >= config.num_layers) {
        return invalid_argument(
            fmt::format("{}: the MoE layers are [{}, {}); correct the placement", describe(shard),
                        config.first_dense_layers, config.num_layers));
    }
    if (shard.expert < 0 || shard.expert >= config.num_experts) {
        return invalid_argument(fmt::format("{}: the model has {} experts; correct the placement",
                                            describe(shard), config.num_experts));
    }
    const bool is_inside =
        0 <= shard.begin && shard.begin < shard.end && shard.end <= config.moe_intermediate;
    if (!is_inside || shard.begin % kSliceMultiple != 0 || shard.end % kSliceMultiple != 0) {
        return invalid_argument(
            fmt::format("{}: columns must be multiples of {} in [0, {}]; correct the placement",
                        describe(shard), kSliceMultiple, config.moe_intermediate));
    }
    return Status::ok();
}

// A column held twice would be counted twice in every sum.
Status check_disjoint(std::span<const Shard> sorted) {
    for (size_t i = 1; i < sorted.size(); ++i) {
        const Shard& a = sorted[i - 1];
        const Shard& b = sorted[i];
        if (a.layer == b.layer && a.expert == b.expert && b.begin < a.end) {
            return invalid_argument(fmt::format(
                "{} overlaps columns [{}, {}) of the same holder; correct the placement",
                describe(b), a.begin, a.end));
        }
    }
    return Status::ok();
}

std::vector<Shard> sorted_by_expert(std::span<const Shard> shards) {
    std::vector<Shard> sorted(shards.begin(), shards.end());
    std::sort(sorted.begin(), sorted.end(), [](const Shard& a, const Shard& b) {
        return std::tie(a.layer, a.expert, a.begin) < std::tie(b.layer, b.expert, b.begin);
    });
    return sorted;
}

// Where the shard's expert starts in the checkpoint; both releases' names are tried.
std::pair<int32_t, int64_t> place_in_files(const Checkpoint& checkpoint, const Shard& shard) {
    for (const char* suffix : {"weight", "weight_packed"}) {
        const TensorInfo* tensor = checkpoint.find(
            fmt::format("language_model.model.layers.{}.block_sparse_moe.experts.{}.w1.{}",
                        shard.layer, shard.expert, suffix));
        if (tensor != nullptr) return {tensor->file, tensor->offset_bytes};
    }
    return {};
}

// Reading files front to back keeps the disk and the page cache sequential.
std::vector<Shard> sorted_by_file(const Checkpoint& checkpoint, std::span<const Shard> shards) {
    std::vector<std::pair<std::pair<int32_t, int64_t>, Shard>> keyed;
    keyed.reserve(shards.size());
    for (const Shard& shard : shards) keyed.emplace_back(place_in_files(checkpoint, shard), shard);
    std::stable_sort(keyed.begin(), keyed.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Shard> sorted;
    sorted.reserve(keyed.size());
    for (const auto& [place, shard] : keyed) sorted.push_back(shard);
    return sorted;
}

// Keeps to LoadProgress's promise of at most ten calls a second; the last byte is always reported.
class ProgressMeter {
  public:
    ProgressMeter(const LoadProgress& report, int64_t total_bytes)
        : report_(report), total_bytes_(total_bytes) {}

    void add(int64_t bytes) {
        done_bytes_ += bytes;
        const auto now = std::chrono::steady_clock::now();
        const bool is_due = now - last_ >= std::chrono::milliseconds(100);
        if (!report_ || (!is_due && done_bytes_ < total_bytes_)) return;
        last_ = now;
        report_(done_bytes_, total_bytes_);
    }

  private:
    const LoadProgress& report_;
    int64_t total_bytes_;
    int64_t done_bytes_ = 0;
    std::chrono::steady_clock::time_point last_;
};

}  // namespace

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
    const std::vector<Shard> sorted = sorted_by_expert(shards);
    int64_t total_bytes = 0;
    for (const Shard& shard : sorted) {
        K3POD_TRY(check_shard(config, shard));
        total_bytes += expert_shard_bytes(config, release, shard.end - shard.begin);
    }
    K3POD_TRY(check_disjoint(sorted));

    auto impl = std::make_unique<Impl>(config);
    ProgressMeter meter(progress, total_bytes);
    // The sort is stable and an expert's slices share a place, so they stay in order of begin.
    for (const Shard& shard : sorted_by_file(checkpoint, sorted)) {
        auto weights = load_expert_shard(checkpoint, config, release, shard.layer, shard.expert,
                                         shard.begin, shard.end);
        if (!weights.is_ok()) return weights.status().with_context(describe(shard));
        impl->size_bytes += weights->size_bytes();
        impl->num_shards += 1;
        if (weights->format() == WeightFormat::kNvfp4) impl->num_nvfp4_shards += 1;
        impl->of(shard.layer, shard.expert).push_back(std::move(weights).value());
        meter.add(expert_shard_bytes(config, release, shard.end - shard.begin));
    }
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

#include <algorithm>

#include "experts/check_frame.h"
#include "k3pod/base/check.h"
#include "k3pod/experts/expert_store.h"
#include "k3pod/ops/mlp.h"

namespace k3pod {

struct ExpertRunner::Impl {
    const ExpertStore& store;
    FrameBounds bounds;
    HostBuffer scratch;
    std::vector<ops::WeightedRow> rows;    // one for each entry
    std::vector<ops::ExpertGroup> groups;  // one for each shard that has entries

    Impl(const ExpertStore& expert_store, int32_t rows_limit);
    Status group_by_expert(int32_t layer, std::span<const wire::WireEntry> entries);
};

namespace {

struct Extent {
    int32_t max_width = 0;  // of a shard
    size_t max_shards = 0;  // of an expert
};

Extent extent_of(const ExpertStore& store) {
    const ModelConfig& config = store.config();
    Extent extent;
    for (int32_t layer = config.first_dense_layers; layer < config.num_layers; ++layer) {
        for (int32_t expert = 0; expert < config.num_experts; ++expert) {
            const auto shards = store.find(layer, expert);
            extent.max_shards = std::max(extent.max_shards, shards.size());
            for (const auto& shard : shards) {
                extent.max_width = std::max(extent.max_width, shard.w1.rows);
            }
        }
    }
    return extent;
}

}  // namespace

ExpertRunner::Impl::Impl(const ExpertStore& expert_store, int32_t rows_limit)
    : store(expert_store), bounds{rows_limit, expert_store.config().top_k} {
    K3POD_CHECK(rows_limit > 0, "an expert runner needs room for at least one row");
    const Extent extent = extent_of(store);
    const int64_t floats =
        ops::grouped_experts_scratch_floats(store.config().latent, extent.max_width);
    scratch = HostBuffer(floats * static_cast<int64_t>(sizeof(float)));
    const auto max_entries = static_cast<size_t>(bounds.max_entries());
    rows.reserve(max_entries);
    const auto num_experts = static_cast<size_t>(store.config().num_experts);
    groups.reserve(std::min(max_entries, num_experts) * extent.max_shards);
}

Status ExpertRunner::Impl::group_by_expert(int32_t layer,
                                           std::span<const wire::WireEntry> entries) {
    rows.clear();
    groups.clear();
    for (const wire::WireEntry& entry : entries) rows.push_back({entry.row, entry.weight});
    for (size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
        const uint16_t expert = entries[begin].expert;
        while (end < entries.size() && entries[end].expert == expert) ++end;
        const auto shards = store.find(layer, expert);
        if (shards.empty()) return expert_not_held(layer, expert);
        for (const HeldShard& shard : shards) {
            groups.push_back({.w1 = shard.w1,
                              .w3 = shard.w3,
                              .w2 = shard.w2,
                              .rows = std::span(rows).subspan(begin, end - begin)});
        }
    }
    return Status::ok();
}

ExpertRunner::ExpertRunner(const ExpertStore& store, int32_t max_rows)
    : impl_(std::make_unique<Impl>(store, max_rows)) {}
ExpertRunner::~ExpertRunner() = default;

Status ExpertRunner::run(int32_t layer, int32_t rows, std::span<const Bf16> latents,
                         std::span<const wire::WireEntry> entries, std::span<float> out) {
    K3POD_TRY(check_frame(impl_->bounds, rows, entries));
    K3POD_TRY(impl_->group_by_expert(layer, entries));
    const ModelConfig& config = impl_->store.config();
    auto* scratch = reinterpret_cast<float*>(impl_->scratch.data());
    const auto scratch_floats = static_cast<size_t>(impl_->scratch.size_bytes()) / sizeof(float);
    ops::grouped_experts({.rows = rows,
                          .latent = config.latent,
                          .latents = latents,
                          .groups = impl_->groups,
                          .situ = {config.situ_beta, config.situ_linear_beta},
                          .scratch = {scratch, scratch_floats},
                          .out = out});
    return Status::ok();
}

}  // namespace k3pod

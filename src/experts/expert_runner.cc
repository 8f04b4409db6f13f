#include <fmt/format.h>

#include <algorithm>

#include "k3pod/base/check.h"
#include "k3pod/experts/expert_store.h"
#include "k3pod/ops/mlp.h"

namespace k3pod {

struct ExpertRunner::Impl {
    const ExpertStore& store;
    int32_t max_rows;
    HostBuffer scratch;
    std::vector<ops::WeightedRow> rows;    // one for each entry
    std::vector<ops::ExpertGroup> groups;  // one for each shard that has entries

    Impl(const ExpertStore& expert_store, int32_t rows_limit);
    size_t max_entries() const;
    Status check_frame(int32_t frame_rows, std::span<const wire::WireEntry> entries) const;
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
                extent.max_width = std::max(extent.max_width, shard.w1.view().rows);
            }
        }
    }
    return extent;
}

}  // namespace

size_t ExpertRunner::Impl::max_entries() const {
    return static_cast<size_t>(max_rows) * static_cast<size_t>(store.config().top_k);
}

ExpertRunner::Impl::Impl(const ExpertStore& expert_store, int32_t rows_limit)
    : store(expert_store), max_rows(rows_limit) {
    K3POD_CHECK(rows_limit > 0, "an expert runner needs room for at least one row");
    const Extent extent = extent_of(store);
    const int64_t floats =
        ops::grouped_experts_scratch_floats(store.config().latent, extent.max_width);
    scratch = HostBuffer(floats * static_cast<int64_t>(sizeof(float)));
    rows.reserve(max_entries());
    const auto num_experts = static_cast<size_t>(store.config().num_experts);
    groups.reserve(std::min(max_entries(), num_experts) * extent.max_shards);
}

// Entries come off a wire: what is wrong with them is an answer, not an abort.
Status ExpertRunner::Impl::check_frame(int32_t frame_rows,
                                       std::span<const wire::WireEntry> entries) const {
    if (frame_rows < 0 || frame_rows > max_rows) {
        return invalid_argument(
            fmt::format("frame has {} rows, the limit is {}", frame_rows, max_rows));
    }
    if (entries.size() > max_entries()) {
        return invalid_argument(fmt::format("frame has {} entries, the limit is {} rows x top-{}",
                                            entries.size(), max_rows, store.config().top_k));
    }
    for (size_t i = 0; i < entries.size(); ++i) {
        const wire::WireEntry& entry = entries[i];
        if (entry.row >= frame_rows) {
            return invalid_argument(fmt::format("entry {} names row {} of a frame of {} rows", i,
                                                entry.row, frame_rows));
        }
        if (i == 0) continue;
        const wire::WireEntry& before = entries[i - 1];
        if (std::pair(before.expert, before.row) >= std::pair(entry.expert, entry.row)) {
            return invalid_argument(fmt::format(
                "entry {} (expert {}, row {}) is not behind entry {} (expert {}, row {}): entries "
                "must be sorted by expert, then row, none twice",
                i, entry.expert, entry.row, i - 1, before.expert, before.row));
        }
    }
    return Status::ok();
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
        if (shards.empty()) {
            return not_found(fmt::format(
                "layer {} expert {} is not held here; the sender uses another placement", layer,
                expert));
        }
        for (const ExpertShardWeights& shard : shards) {
            groups.push_back({.w1 = shard.w1.view(),
                              .w3 = shard.w3.view(),
                              .w2 = shard.w2.view(),
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
    K3POD_TRY(impl_->check_frame(rows, entries));
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

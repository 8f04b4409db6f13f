#include "tests/support/local_experts.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "k3pod/ops/mlp.h"

namespace k3pod::testing {

Result<std::unique_ptr<LocalExperts>> LocalExperts::load(const Checkpoint& checkpoint,
                                                         const ModelConfig& config, Release release,
                                                         const Placement& placement,
                                                         const LocalExpertsOptions& options) {
    std::unique_ptr<LocalExperts> experts(new LocalExperts(placement));
    experts->options_ = options;
    for (size_t h = 0; h < placement.holders.size(); ++h) {
        const std::vector<Shard> shards = placement.shards_of(static_cast<int32_t>(h));
        K3POD_ASSIGN(std::unique_ptr<ExpertStore> store,
                     ExpertStore::load(checkpoint, config, release, shards, nullptr));
        auto runner = std::make_unique<ExpertRunner>(*store, options.max_rows);
        experts->holders_.push_back(
            {.store = std::move(store), .runner = std::move(runner), .entries = {}});
    }
    return experts;
}

Status LocalExperts::dispatch(const RoutedRows& rows) {
    latents_.resize(rows.latents.size());
    std::ranges::transform(rows.latents, latents_.begin(), to_bf16);
    partial_.resize(rows.latents.size());
    sum_.assign(rows.latents.size(), 0.0f);
    sort_entries_by_holder(rows);
    for (Holder& holder : holders_) {
        if (holder.entries.empty()) continue;
        if (options_.rounding == WireRounding::kNone) {
            run_unrounded(holder, rows);
        } else {
            K3POD_TRY(
                holder.runner->run(rows.layer, rows.rows, latents_, holder.entries, partial_));
        }
        add_partial();
    }
    return Status::ok();
}

Status LocalExperts::combine(std::span<float> out) {
    std::ranges::copy(sum_, out.begin());
    return Status::ok();
}

void LocalExperts::sort_entries_by_holder(const RoutedRows& rows) {
    for (Holder& holder : holders_) holder.entries.clear();
    for (size_t i = 0; i < rows.experts.size(); ++i) {
        const wire::WireEntry entry{
            .row = static_cast<uint16_t>(i / static_cast<size_t>(rows.top_k)),
            .expert = rows.experts[i],
            .weight = rows.weights[i]};
        for (const PlacedSlice& slice : placement_.of(rows.layer, entry.expert)) {
            // A holder of two slices of one expert still gets one entry: its runner adds both.
            std::vector<wire::WireEntry>& entries =
                holders_[static_cast<size_t>(slice.holder)].entries;
            const bool is_there = !entries.empty() && entries.back().row == entry.row &&
                                  entries.back().expert == entry.expert;
            if (!is_there) entries.push_back(entry);
        }
    }
    for (Holder& holder : holders_) {
        std::ranges::sort(holder.entries, {},
                          [](const wire::WireEntry& e) { return std::tuple(e.expert, e.row); });
    }
}

// One row and expert at a time: the runner takes bf16 latents only.
void LocalExperts::run_unrounded(const Holder& holder, const RoutedRows& rows) {
    const ModelConfig& config = holder.store->config();
    const auto latent = static_cast<size_t>(rows.latent);
    output_.resize(latent);
    scratch_.resize(static_cast<size_t>(2 * config.moe_intermediate));
    std::ranges::fill(partial_, 0.0f);
    for (const wire::WireEntry& entry : holder.entries) {
        for (const HeldShard& shard : holder.store->find(rows.layer, entry.expert)) {
            ops::mlp({.tokens = 1,
                      .gate = shard.w1,
                      .up = shard.w3,
                      .down = shard.w2,
                      .situ = {.beta = config.situ_beta, .linear_beta = config.situ_linear_beta},
                      .x = rows.latents.subspan(entry.row * latent, latent),
                      .scratch = scratch_,
                      .y = output_});
            for (size_t i = 0; i < latent; ++i) {
                partial_[entry.row * latent + i] += entry.weight * output_[i];
            }
        }
    }
}

void LocalExperts::add_partial() {
    const bool is_rounded = options_.rounding == WireRounding::kBoth;
    for (size_t i = 0; i < partial_.size(); ++i) {
        sum_[i] += is_rounded ? to_f32(to_bf16(partial_[i])) : partial_[i];
    }
}

Result<Placement> even_placement(const ModelConfig& config, PlacementMode mode,
                                 int32_t num_holders) {
    std::vector<HolderBudget> budgets;
    for (int32_t h = 0; h < num_holders; ++h) {
        budgets.push_back(
            {.name = "holder-" + std::to_string(h), .budget_bytes = int64_t{1} << 40});
    }
    const PlacementShape shape{.first_layer = config.first_dense_layers,
                               .num_layers = config.num_moe_layers(),
                               .num_experts = config.num_experts,
                               .width = config.moe_intermediate,
                               .bytes_per_column = 1};
    return place_evenly(shape, budgets, mode, 1);
}

}  // namespace k3pod::testing

#include "experts/load_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

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

}  // namespace

Status load_shards(const Checkpoint& checkpoint, const ModelConfig& config, Release release,
                   std::span<const Shard> shards, const LoadProgress& progress,
                   const TakeShard& take) {
    const std::vector<Shard> sorted = sorted_by_expert(shards);
    int64_t total_bytes = 0;
    for (const Shard& shard : sorted) {
        K3POD_TRY(check_shard(config, shard));
        total_bytes += expert_shard_bytes(config, release, shard.end - shard.begin);
    }
    K3POD_TRY(check_disjoint(sorted));
    ProgressMeter meter(progress, total_bytes);
    // The sort is stable and an expert's slices share a place, so they stay in order of begin.
    for (const Shard& shard : sorted_by_file(checkpoint, sorted)) {
        auto weights = load_expert_shard(checkpoint, config, release, shard.layer, shard.expert,
                                         shard.begin, shard.end);
        if (!weights.is_ok()) return weights.status().with_context(describe(shard));
        const Status taken = take(shard, std::move(weights).value());
        if (!taken.is_ok()) return taken.with_context(describe(shard));
        meter.add(expert_shard_bytes(config, release, shard.end - shard.begin));
    }
    return Status::ok();
}

}  // namespace k3pod

#include "experts/load_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace k3pod {
namespace {

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

// Indices of the shards, so that reading files front to back keeps the disk sequential.
std::vector<size_t> in_file_order(const Checkpoint& checkpoint, std::span<const Shard> shards) {
    std::vector<std::tuple<std::pair<int32_t, int64_t>, int32_t, size_t>> keyed;
    keyed.reserve(shards.size());
    for (size_t i = 0; i < shards.size(); ++i) {
        keyed.emplace_back(place_in_files(checkpoint, shards[i]), shards[i].begin, i);
    }
    std::ranges::sort(keyed);
    std::vector<size_t> order;
    order.reserve(shards.size());
    for (const auto& [place, begin, index] : keyed) order.push_back(index);
    return order;
}

}  // namespace

std::string describe(const Shard& shard) {
    return fmt::format("shard of layer {} expert {} columns [{}, {})", shard.layer, shard.expert,
                       shard.begin, shard.end);
}

Status check_shards(const ModelConfig& config, std::span<const Shard> shards) {
    for (const Shard& shard : shards) K3POD_TRY(check_shard(config, shard));
    return check_disjoint(sorted_by_expert(shards));
}

std::pair<int32_t, int64_t> place_in_files(const Checkpoint& checkpoint, const Shard& shard) {
    for (const char* suffix : {"weight", "weight_packed"}) {
        const TensorInfo* tensor = checkpoint.find(
            fmt::format("language_model.model.layers.{}.block_sparse_moe.experts.{}.w1.{}",
                        shard.layer, shard.expert, suffix));
        if (tensor != nullptr) return {tensor->file, tensor->offset_bytes};
    }
    return {};
}

Status load_shards(const Checkpoint& checkpoint, const ModelConfig& config, Release release,
                   std::span<const Shard> shards, const LoadProgress& progress,
                   const PutShard& put) {
    int64_t total_bytes = 0;
    for (const Shard& shard : shards) {
        total_bytes += expert_shard_bytes(config, release, shard.end - shard.begin);
    }
    ProgressMeter meter(progress, total_bytes);
    int32_t file = -1;
    for (const size_t index : in_file_order(checkpoint, shards)) {
        const Shard& shard = shards[index];
        const int32_t last_file = std::exchange(file, place_in_files(checkpoint, shard).first);
        if (last_file >= 0 && last_file != file) checkpoint.drop_cached(last_file);
        const auto weights = load_expert_shard(checkpoint, config, release, shard.layer,
                                               shard.expert, shard.begin, shard.end);
        if (!weights.is_ok()) return weights.status().with_context(describe(shard));
        const Status is_put = put(index, held_shard(*weights));
        if (!is_put.is_ok()) return is_put.with_context(describe(shard));
        meter.add(expert_shard_bytes(config, release, shard.end - shard.begin));
    }
    if (file >= 0) checkpoint.drop_cached(file);
    return Status::ok();
}

}  // namespace k3pod

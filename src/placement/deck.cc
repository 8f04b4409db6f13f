#include "deck.h"

#include <fmt/format.h>

#include <set>

#include "tiling.h"

namespace k3pod {

constexpr int64_t kMaxBytesPerColumn = 1 << 20;
constexpr int64_t kMaxBytesPerShard = 1 << 20;
constexpr size_t kMaxHolders = 256;  // so that placing them stays a matter of seconds

Deck make_deck(const PlacementShape& shape, PlacementMode mode) {
    const bool is_whole = mode == PlacementMode::kWhole;
    const int32_t columns = is_whole ? shape.width : kSliceMultiple;
    const int64_t num_experts = int64_t{shape.num_layers} * shape.num_experts;
    return {
        .grain_columns = columns,
        .grain_bytes = columns * shape.bytes_per_column + (is_whole ? shape.bytes_per_shard : 0),
        .grains_per_expert = shape.width / columns,
        .num_experts = num_experts,
        .fixed_bytes = is_whole ? 0 : num_experts * shape.bytes_per_shard};
}

Status check_arguments(const PlacementShape& shape, std::span<const HolderBudget> budgets) {
    K3POD_TRY(check_counts(shape.first_layer, shape.num_layers, shape.num_experts, shape.width));
    if (shape.bytes_per_column < 1 || shape.bytes_per_column > kMaxBytesPerColumn) {
        return invalid_argument(fmt::format("bytes_per_column: found {}, expected 1 to {}",
                                            shape.bytes_per_column, kMaxBytesPerColumn));
    }
    if (shape.bytes_per_shard < 0 || shape.bytes_per_shard > kMaxBytesPerShard) {
        return invalid_argument(fmt::format("bytes_per_shard: found {}, expected 0 to {}",
                                            shape.bytes_per_shard, kMaxBytesPerShard));
    }
    if (budgets.empty()) return invalid_argument("no node can hold experts: name at least one");
    if (budgets.size() > kMaxHolders) {
        return invalid_argument(fmt::format("{} nodes hold experts, at most {} can be planned for",
                                            budgets.size(), kMaxHolders));
    }
    std::set<std::string_view> seen;
    for (const HolderBudget& holder : budgets) {
        if (holder.name.empty()) return invalid_argument("a node that holds experts has no name");
        if (!seen.insert(holder.name).second) {
            return invalid_argument(fmt::format("node {} is there twice", holder.name));
        }
        if (holder.budget_bytes < 0) {
            return invalid_argument(fmt::format("node {}: budget of {} bytes, expected 0 or more",
                                                holder.name, holder.budget_bytes));
        }
    }
    return Status::ok();
}

}  // namespace k3pod

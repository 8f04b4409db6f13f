#include "exchange/holder_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3pod::exchange {
namespace {

Status check_shape(const Placement& placement, const wire::FrameLimits& limits) {
    if (placement.num_experts != limits.num_experts) {
        return invalid_argument(fmt::format("placement: {} experts, the model has {}",
                                            placement.num_experts, limits.num_experts));
    }
    const int32_t end = placement.first_layer + placement.num_layers;
    if (placement.first_layer < 0 || placement.num_layers < 0 || end > limits.num_layers) {
        return invalid_argument(fmt::format("placement: layers [{}, {}), the model has {}",
                                            placement.first_layer, end, limits.num_layers));
    }
    const size_t expected =
        static_cast<size_t>(placement.num_layers) * static_cast<size_t>(placement.num_experts);
    if (placement.slices.size() != expected) {
        return invalid_argument(fmt::format("placement: slices of {} experts, expected {}",
                                            placement.slices.size(), expected));
    }
    return Status::ok();
}

}  // namespace

Result<HolderTable> HolderTable::build(const Placement& placement,
                                       const wire::FrameLimits& limits) {
    K3POD_TRY(check_shape(placement, limits));
    HolderTable table;
    table.first_layer_ = placement.first_layer;
    table.num_layers_ = placement.num_layers;
    table.num_experts_ = static_cast<size_t>(placement.num_experts);
    table.has_shards_.resize(placement.holders.size());
    table.begin_.push_back(0);
    for (size_t i = 0; i < placement.slices.size(); ++i) {
        std::vector<uint16_t> holders;
        for (const PlacedSlice& slice : placement.slices[i]) {
            if (slice.holder < 0 || static_cast<size_t>(slice.holder) >= placement.holders.size()) {
                return invalid_argument(fmt::format("placement: holder {} of {}", slice.holder,
                                                    placement.holders.size()));
            }
            holders.push_back(static_cast<uint16_t>(slice.holder));
            table.has_shards_[static_cast<size_t>(slice.holder)] = true;
        }
        if (holders.empty()) {
            return invalid_argument(fmt::format(
                "placement: expert {} of layer {} has no holder", i % table.num_experts_,
                static_cast<size_t>(placement.first_layer) + i / table.num_experts_));
        }
        std::ranges::sort(holders);
        holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
        table.holders_.insert(table.holders_.end(), holders.begin(), holders.end());
        table.begin_.push_back(static_cast<uint32_t>(table.holders_.size()));
    }
    return table;
}

}  // namespace k3pod::exchange

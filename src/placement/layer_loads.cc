#include "layer_loads.h"

#include <utility>

namespace k3pod {

LayerLoads::LayerLoads(const Placement& placement, const Popularity& popularity)
    : placement_(placement),
      sampler_(popularity),
      picks_(static_cast<size_t>(popularity.top_k)),
      loads_(placement.holders.size()),
      row_seen_(placement.holders.size(), 0),
      expert_seen_(static_cast<size_t>(placement.num_experts), 0) {}

const std::vector<HolderLoad>& LayerLoads::draw(int32_t layer_idx, int32_t sequences,
                                                int32_t length, double reuse, PickDice& dice) {
    loads_.assign(loads_.size(), {});
    ++draw_;
    for (int32_t sequence = 0; sequence < sequences; ++sequence) {
        for (int32_t i = 0; i < length; ++i) {
            if (i == 0) {
                sampler_.draw(layer_idx, dice, picks_);
            } else {
                sampler_.follow(layer_idx, reuse, dice, picks_);
            }
            add_row(layer_idx, ++row_);
        }
    }
    return loads_;
}

void LayerLoads::add_row(int32_t layer_idx, uint32_t row) {
    for (const int32_t expert : picks_) {
        const bool is_read =
            std::exchange(expert_seen_[static_cast<size_t>(expert)], draw_) == draw_;
        for (const PlacedSlice& slice : placement_.of(placement_.first_layer + layer_idx, expert)) {
            const auto holder = static_cast<size_t>(slice.holder);
            HolderLoad& load = loads_[holder];
            const int32_t columns = slice.end - slice.begin;
            if (!is_read) load.columns += columns;
            load.row_columns += columns;
            if (std::exchange(row_seen_[holder], row) != row) ++load.rows;
        }
    }
}

}  // namespace k3pod

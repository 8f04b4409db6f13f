#pragma once
// Experts as cards to deal. The card is a grain of an expert's width: all of it (whole) or
// kSliceMultiple columns (sliced).

#include <algorithm>
#include <cstdint>
#include <span>

#include "k3pod/placement/placement.h"

namespace k3pod {

struct Deck {
    int32_t grain_columns = 0;
    int64_t grain_bytes = 0;
    int64_t grains_per_expert = 0;
    int64_t num_experts = 0;  // of all layers
    // Kept free on every holder that holds anything: the scalars of a shard of every expert, which
    // sliced experts may leave everywhere. Whole ones carry theirs in the grain.
    int64_t fixed_bytes = 0;

    int64_t num_grains() const { return grains_per_expert * num_experts; }
    // Grains that fit into a budget.
    int64_t capacity(int64_t budget_bytes) const {
        return std::clamp<int64_t>((budget_bytes - fixed_bytes) / grain_bytes, 0, num_grains());
    }
    // The budget that so many grains need; 0 for none.
    int64_t budget_for(int64_t grains) const {
        return grains > 0 ? grains * grain_bytes + fixed_bytes : 0;
    }
};

Deck make_deck(const PlacementShape& shape, PlacementMode mode);

// The shape is sane, and the holders have distinct names and budgets of 0 or more.
Status check_arguments(const PlacementShape& shape, std::span<const HolderBudget> budgets);

}  // namespace k3pod

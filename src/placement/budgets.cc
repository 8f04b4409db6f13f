#include <algorithm>
#include <numeric>

#include "deck.h"
#include "k3pod/placement/solver.h"

namespace k3pod {

std::vector<HolderBudget> budgets_of(std::span<const Holder> holders) {
    std::vector<HolderBudget> budgets;
    for (const Holder& holder : holders) budgets.push_back({holder.name, holder.budget_bytes});
    return budgets;
}

BudgetCheck check_budgets(const PlacementShape& shape, std::span<const HolderBudget> budgets,
                          PlacementMode mode) {
    const Deck deck = make_deck(shape, mode);
    const auto whole_experts = [&](int64_t grains, bool round_up) {
        const int64_t rounding = round_up ? deck.grains_per_expert - 1 : 0;
        return (grains + rounding) / deck.grains_per_expert;
    };
    int64_t held = 0;
    for (const HolderBudget& holder : budgets) held += deck.capacity(holder.budget_bytes);
    const int64_t short_grains = std::max<int64_t>(deck.num_grains() - held, 0);
    BudgetCheck check{.fits = short_grains == 0,
                      .needed_experts = deck.num_experts,
                      .held_experts = whole_experts(held, /*round_up=*/false),
                      .holders = {}};
    for (const HolderBudget& holder : budgets) {
        const int64_t fits = deck.capacity(holder.budget_bytes);
        const int64_t needed = std::max<int64_t>(deck.num_grains() - (held - fits), 0);
        HolderNeed& need = check.holders.emplace_back();
        need.name = holder.name;
        need.budget_bytes = holder.budget_bytes;
        need.budget_experts = whole_experts(fits, /*round_up=*/false);
        need.needed_bytes = deck.budget_for(needed);
        need.needed_experts = whole_experts(needed, /*round_up=*/true);
        if (check.fits) continue;
        need.short_bytes = need.needed_bytes - holder.budget_bytes;
        need.short_experts = whole_experts(short_grains, /*round_up=*/true);
    }
    return check;
}

}  // namespace k3pod

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "deck.h"
#include "k3pod/placement/placement.h"

// First every holder's number of grains is fixed, then the grains of all experts are dealt in
// order, so that each holder's share of any run of experts, and hence of any layer, is close to its
// share of all.

namespace k3pod {
namespace {

// `total` split as evenly as the capacities allow; they hold at least `total` together. From the
// smallest capacity up, each takes its part of what is left, or all it can.
std::vector<int64_t> split_evenly(int64_t total, std::span<const int64_t> capacities) {
    std::vector<size_t> order(capacities.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return capacities[a] < capacities[b]; });
    std::vector<int64_t> parts(capacities.size());
    int64_t num_left = std::ssize(order);
    for (const size_t i : order) {
        parts[i] = std::min(capacities[i], total / num_left);
        total -= parts[i];
        --num_left;
    }
    return parts;
}

// Smooth weighted round robin over `parts`. Every call adds to each holder's claim its part and
// takes the whole from the holder whose claim is largest. Claims stay above minus the whole and sum
// to zero, so after a full round each holder was picked exactly its part.
class Dealer {
  public:
    explicit Dealer(std::vector<int64_t> parts)
        : parts_(std::move(parts)),
          whole_(std::accumulate(parts_.begin(), parts_.end(), int64_t{0})),
          claims_(parts_.size(), 0) {}

    size_t next() {
        for (size_t i = 0; i < parts_.size(); ++i) claims_[i] += parts_[i];
        const auto largest = std::max_element(claims_.begin(), claims_.end());
        *largest -= whole_;
        return static_cast<size_t>(largest - claims_.begin());
    }

  private:
    std::vector<int64_t> parts_;
    int64_t whole_;
    std::vector<int64_t> claims_;
};

Status too_small(const Deck& deck, std::span<const HolderBudget> budgets,
                 std::span<const int64_t> capacities) {
    std::vector<int64_t> unlimited;
    for (const HolderBudget& holder : budgets) {
        unlimited.push_back(holder.budget_bytes > 0 ? deck.num_grains() : 0);
    }
    const bool has_budget =
        std::any_of(unlimited.begin(), unlimited.end(), [](int64_t grains) { return grains > 0; });
    if (!has_budget) std::fill(unlimited.begin(), unlimited.end(), deck.num_grains());
    const std::vector<int64_t> fair = split_evenly(deck.num_grains(), unlimited);
    const int64_t held = std::accumulate(capacities.begin(), capacities.end(), int64_t{0});
    std::string message =
        fmt::format("the routed experts need {} bytes, the budgets hold {}: short by {} bytes",
                    deck.num_grains() * deck.grain_bytes, held * deck.grain_bytes,
                    (deck.num_grains() - held) * deck.grain_bytes);
    for (size_t i = 0; i < budgets.size(); ++i) {
        const int64_t needed = deck.budget_for(fair[i]);
        message += fmt::format("; {} needs {}, budget {}, short by {}", budgets[i].name, needed,
                               budgets[i].budget_bytes,
                               std::max<int64_t>(needed - budgets[i].budget_bytes, 0));
    }
    return resource_exhausted(message + "; raise the budgets or add nodes");
}

// The next expert's slices, holders in ascending order.
std::vector<PlacedSlice> deal_expert(const Deck& deck, Dealer& dealer,
                                     std::vector<int64_t>& grains) {
    std::fill(grains.begin(), grains.end(), 0);
    for (int64_t i = 0; i < deck.grains_per_expert; ++i) ++grains[dealer.next()];
    std::vector<PlacedSlice> slices;
    int32_t begin = 0;
    for (size_t holder = 0; holder < grains.size(); ++holder) {
        if (grains[holder] == 0) continue;
        const auto end = static_cast<int32_t>(begin + grains[holder] * deck.grain_columns);
        slices.push_back({begin, end, static_cast<int32_t>(holder)});
        begin = end;
    }
    return slices;
}

}  // namespace

Result<Placement> place_evenly(const PlacementShape& shape, std::span<const HolderBudget> budgets,
                               PlacementMode mode, uint32_t epoch) {
    K3POD_TRY(check_arguments(shape, budgets));
    const Deck deck = make_deck(shape, mode);
    std::vector<int64_t> capacities;
    int64_t held = 0;
    for (const HolderBudget& holder : budgets) {
        capacities.push_back(deck.capacity(holder.budget_bytes));
        held += capacities.back();
    }
    if (held < deck.num_grains()) return too_small(deck, budgets, capacities);

    Placement placement{.epoch = epoch,
                        .first_layer = shape.first_layer,
                        .num_layers = shape.num_layers,
                        .num_experts = shape.num_experts,
                        .width = shape.width,
                        .holders = {},
                        .slices = {}};
    for (const HolderBudget& holder : budgets) placement.holders.push_back(holder.name);
    Dealer dealer(split_evenly(deck.num_grains(), capacities));
    std::vector<int64_t> grains(budgets.size());
    placement.slices.reserve(static_cast<size_t>(deck.num_experts));
    for (int64_t i = 0; i < deck.num_experts; ++i) {
        placement.slices.push_back(deal_expert(deck, dealer, grains));
    }
    return placement;
}

}  // namespace k3pod

#include "k3pod/placement/solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <numeric>

#include "dealing.h"
#include "hot_first.h"
#include "replicate.h"
#include "timing.h"
#include "volumes.h"

// In each mode: fix how much each holder gets (volumes.h), deal the experts by these shares, and,
// where the popularity is known, by shares that lean more and more towards putting hot experts on
// fast holders (hot_first.h). The candidate whose slowest holder is fastest over the same random
// steps wins; an even fill is one of them.

namespace k3pod {
namespace {

Status check_problem(const PlacementProblem& problem) {
    K3POD_TRY(check_arguments(problem.shape, budgets_of(problem.holders)));
    for (const Holder& holder : problem.holders) {
        if (std::isfinite(holder.bytes_per_s) && holder.bytes_per_s > 0) continue;
        return invalid_argument(fmt::format("node {}: bandwidth of {} bytes/s, expected above 0",
                                            holder.name, holder.bytes_per_s));
    }
    const Popularity& popularity = problem.popularity;
    const bool is_same_model = popularity.num_layers == problem.shape.num_layers &&
                               popularity.num_experts == problem.shape.num_experts;
    if (!is_same_model) {
        return invalid_argument(fmt::format("popularity of {} x {} experts, the model has {} x {}",
                                            popularity.num_layers, popularity.num_experts,
                                            problem.shape.num_layers, problem.shape.num_experts));
    }
    if (popularity.top_k < 1 || popularity.top_k > popularity.num_experts) {
        return invalid_argument(fmt::format("top_k: found {}, expected 1 to {}", popularity.top_k,
                                            popularity.num_experts));
    }
    if (problem.batch_tokens < 1) {
        return invalid_argument(
            fmt::format("batch_tokens: found {}, expected 1 or more", problem.batch_tokens));
    }
    return Status::ok();
}

Status too_small(const BudgetCheck& check) {
    std::string message =
        fmt::format("{} experts, the budgets hold {}: {} are homeless", check.needed_experts,
                    check.held_experts, check.holders.front().short_experts);
    for (const HolderNeed& need : check.holders) {
        message += fmt::format("; {} needs {} bytes if the others are full, budget {}, short by {}",
                               need.name, need.needed_bytes, need.budget_bytes, need.short_bytes);
    }
    return resource_exhausted(message + "; raise a budget or add nodes");
}

// One mode's way from the problem to a placement.
class ModeSolver {
  public:
    ModeSolver(const PlacementProblem& problem, const StepDraws& draws, PlacementMode mode,
               uint32_t epoch)
        : problem_(problem),
          draws_(draws),
          mode_(mode),
          epoch_(epoch),
          deck_(make_deck(problem.shape, mode)) {
        std::vector<double> speeds;
        for (const Holder& holder : problem.holders) {
            capacities_.push_back(deck_.capacity(holder.budget_bytes));
            speeds.push_back(holder.bytes_per_s);
        }
        groups_ = group_holders(capacities_, speeds);
    }

    // The budgets hold everything.
    Result<Plan> solve() {
        choose_volumes();
        K3POD_ASSIGN(Placement even,
                     place_evenly(problem_.shape, budgets_of(problem_.holders), mode_, epoch_));
        Plan best;
        best.mode = mode_;
        best.placement = std::move(even);
        best.times = measure(best.placement, ReplicaUse::kIgnored);
        best.even_fill_s = best.times.slowest_s;
        constexpr double kLeanings[] = {0.0, 0.25, 0.5, 0.75, 1.0};
        for (const double leaning : kLeanings) {
            if (leaning > 0 && problem_.popularity.is_uniform) break;
            Placement candidate = place(leaning);
            StepTimes times = measure(candidate, ReplicaUse::kIgnored);
            if (times.slowest_s >= best.times.slowest_s) continue;
            best.placement = std::move(candidate);
            best.times = std::move(times);
        }
        replicate(best);
        return best;
    }

  private:
    StepTimes measure(const Placement& placement, ReplicaUse replicas) const {
        StepTimes times = times_over(placement, problem_, draws_, replicas);
        times.tokens = problem_.batch_tokens;
        return times;
    }

    void choose_volumes() {
        // Beyond so many picks a step reads nearly what its shares say, and counting gets costly.
        constexpr double kFewPicks = 32;
        const auto total = static_cast<double>(deck_.num_grains());
        fill_level(groups_, total);
        const std::vector<double> reads = reads_of_layer(0);
        const double picks = std::accumulate(reads.begin(), reads.end(), 0.0);
        if (mode_ != PlacementMode::kWhole || !problem_.popularity.is_uniform ||
            picks > kFewPicks) {
            return;
        }
        shorten_tail(groups_, problem_.shape.num_experts, total,
                     static_cast<int32_t>(std::lround(picks)),
                     static_cast<double>(deck_.grain_bytes));
    }

    std::vector<double> reads_of_layer(int32_t layer_idx) const {
        const std::span<const double> chance = problem_.popularity.of_layer(layer_idx);
        std::vector<double> reads(chance.begin(), chance.end());
        for (double& value : reads) value = read_chance(value, problem_.batch_tokens);
        return reads;
    }

    // leaning: 0 deals every expert by the holders' volumes alone, 1 hot experts first.
    Placement place(double leaning) const {
        GrainDealer dealer(deck_, problem_.holders.size());
        const auto num_experts = static_cast<size_t>(problem_.shape.num_experts);
        std::vector<double> volumes;  // of each group, in experts of one layer
        for (const HolderGroup& group : groups_) {
            volumes.push_back(group.total_volume() / static_cast<double>(deck_.num_grains()) *
                              static_cast<double>(num_experts));
        }
        std::vector<double> shares(problem_.holders.size());
        for (int32_t layer = 0; layer < problem_.shape.num_layers; ++layer) {
            const std::vector<double> reads = reads_of_layer(layer);
            std::vector<double> split;
            if (leaning > 0) split = split_hot_first(reads, groups_, volumes);
            for (const size_t expert : hot_first_order(reads)) {
                for (size_t g = 0; g < groups_.size(); ++g) {
                    const double even = volumes[g] / static_cast<double>(num_experts);
                    const double lean = leaning > 0 ? split[expert * groups_.size() + g] : even;
                    const double share = (1 - leaning) * even + leaning * lean;
                    for (const size_t h : groups_[g].members) shares[h] = share / groups_[g].size();
                }
                dealer.deal(static_cast<size_t>(layer) * num_experts + expert, shares);
            }
        }
        dealer.keep_within(capacities_);
        return named(dealer.slices());
    }

    std::vector<size_t> hot_first_order(const std::vector<double>& reads) const {
        std::vector<size_t> order(reads.size());
        std::iota(order.begin(), order.end(), size_t{0});
        if (problem_.popularity.is_uniform) return order;
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return reads[a] > reads[b]; });
        return order;
    }

    Placement named(std::vector<std::vector<PlacedSlice>> slices) const {
        Placement placement{.epoch = epoch_,
                            .first_layer = problem_.shape.first_layer,
                            .num_layers = problem_.shape.num_layers,
                            .num_experts = problem_.shape.num_experts,
                            .width = problem_.shape.width,
                            .holders = {},
                            .slices = std::move(slices)};
        for (const Holder& holder : problem_.holders) placement.holders.push_back(holder.name);
        return placement;
    }

    // Slices already give every holder its mean; only whole experts have a tail to shorten.
    void replicate(Plan& plan) const {
        plan.replicas_s = plan.times.slowest_s;
        if (mode_ != PlacementMode::kWhole) return;
        std::vector<int64_t> spare = capacities_;
        for (const auto& slices : plan.placement.slices) {
            --spare[static_cast<size_t>(slices.front().holder)];
        }
        plan.placement.replicas = fill_spare_room(plan.placement, problem_, plan.times, spare);
        plan.replicas_s = measure(plan.placement, ReplicaUse::kChosen).slowest_s;
        if (plan.replicas_s < plan.times.slowest_s) return;
        plan.placement.replicas.clear();
        plan.replicas_s = plan.times.slowest_s;
    }

    const PlacementProblem& problem_;
    const StepDraws& draws_;
    const PlacementMode mode_;
    const uint32_t epoch_;
    const Deck deck_;
    std::vector<int64_t> capacities_;
    std::vector<HolderGroup> groups_;
};

Result<Plan> solve_mode(const PlacementProblem& problem, const StepDraws& draws, PlacementMode mode,
                        uint32_t epoch) {
    const BudgetCheck check = check_budgets(problem.shape, budgets_of(problem.holders), mode);
    if (!check.fits) return too_small(check);
    return ModeSolver(problem, draws, mode, epoch).solve();
}

// Both modes, one on a thread of its own.
Result<Plan> solve_better_mode(const PlacementProblem& problem, const StepDraws& draws,
                               uint32_t epoch) {
    constexpr double kWorthSlicing = 1.05;
    auto future = std::async(std::launch::async, [&] {
        return solve_mode(problem, draws, PlacementMode::kSliced, epoch);
    });
    Result<Plan> whole = solve_mode(problem, draws, PlacementMode::kWhole, epoch);
    Result<Plan> sliced = future.get();
    if (!sliced) return whole;
    if (!whole) return sliced;
    const bool is_worth_slicing = whole->times.slowest_s > kWorthSlicing * sliced->times.slowest_s;
    return is_worth_slicing ? sliced : whole;
}

}  // namespace

Result<Plan> solve_placement(const PlacementProblem& problem, ModeRequest mode, uint32_t epoch) {
    K3POD_TRY(check_problem(problem));
    const StepDraws draws(problem.popularity, problem.batch_tokens);
    Result<Plan> plan = mode == ModeRequest::kAuto ? solve_better_mode(problem, draws, epoch)
                        : mode == ModeRequest::kWhole
                            ? solve_mode(problem, draws, PlacementMode::kWhole, epoch)
                            : solve_mode(problem, draws, PlacementMode::kSliced, epoch);
    if (plan) plan->bound_s = lower_bound_s(problem);
    return plan;
}

}  // namespace k3pod

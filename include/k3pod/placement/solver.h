#pragma once
// A placement solved for speed: who holds what, so that the slowest holder of a layer is done as
// early as budgets allow. docs/placement.md has the model; its one assumption about machines is
// that a holder's time is bytes read / bandwidth.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/placement/placement.h"
#include "k3pod/placement/popularity.h"

namespace k3pod {

// A memory with its own read bandwidth. All holders read side by side.
struct Holder {
    std::string name;
    int64_t budget_bytes = 0;  // 0 holds nothing
    double bytes_per_s = 0;    // more than 0
};

struct PlacementProblem {
    PlacementShape shape;
    std::vector<Holder> holders;
    Popularity popularity;
    int32_t batch_tokens = 1;  // tokens of the step that the placement is made for
};

// ---- does it fit ----

// Counts in whole experts, rounded up for what is needed and down for what fits.
struct HolderNeed {
    std::string name;
    int64_t budget_bytes = 0, budget_experts = 0;
    // What it would have to hold if every other holder were full.
    int64_t needed_bytes = 0, needed_experts = 0;
    int64_t short_bytes = 0;  // to raise the budget by; 0 when everything fits
    int64_t short_experts = 0;
};

struct BudgetCheck {
    bool fits = false;
    int64_t needed_experts = 0;  // all of the model
    int64_t held_experts = 0;    // that the budgets hold together
    std::vector<HolderNeed> holders;
    int64_t spare_experts() const { return held_experts - needed_experts; }  // negative: homeless
};

BudgetCheck check_budgets(const PlacementShape& shape, std::span<const HolderBudget> budgets,
                          PlacementMode mode);
std::vector<HolderBudget> budgets_of(std::span<const Holder> holders);

// ---- how fast is it ----

// Of one MoE layer, for a step of `tokens` tokens. Drawn at random from the popularity with a fixed
// seed, so that the same problem and placement give the same numbers.
struct StepTimes {
    int32_t tokens = 1;
    double slowest_s = 0;        // mean time of the slowest holder
    double slowest_error_s = 0;  // standard error of that mean
    // Mean time of the busiest holder over the mean of all, among the expert servers (among the
    // station's tiers where there are no servers).
    double busiest_to_mean = 1;
    double busiest_to_mean_error = 0;
    std::vector<double> holder_s;     // mean time of each holder
    std::vector<double> picks_share;  // of the picked columns, by who reads them
};

enum class ReplicaUse : uint8_t {
    kIgnored,  // today's runtime
    kChosen,   // each step reads of every replicated expert the copy that is done first
};

// The placement fits the problem's shape and names its holders in any order.
StepTimes expected_times(const Placement& placement, const PlacementProblem& problem,
                         int32_t tokens, ReplicaUse replicas = ReplicaUse::kIgnored);

// No placement of this problem, whole, sliced or replicated, has a slowest holder that is faster in
// the mean: whatever some holders have no room for, the others must hold, at best the experts that
// are picked least, and they read it at no more than their bandwidths together.
double lower_bound_s(const PlacementProblem& problem);

// ---- the solver ----

enum class ModeRequest : uint8_t { kAuto, kWhole, kSliced };

struct Plan {
    Placement placement;
    PlacementMode mode = PlacementMode::kWhole;
    StepTimes times;         // at problem.batch_tokens, replicas ignored
    double replicas_s = 0;   // slowest holder with replicas chosen; times.slowest_s without any
    double even_fill_s = 0;  // slowest holder of an even fill in the same mode
    double bound_s = 0;      // lower_bound_s
    double gap() const { return times.slowest_s / bound_s - 1; }
};

// Every expert within every budget, never slower than an even fill by expected_times. kAuto slices
// where that is more than 5 % faster than whole experts, which need fewer frames. The same problem
// gives the same plan. Under a second for Kimi-K3 on ten holders. kInvalidArgument names the
// argument, kResourceExhausted needed, budget and shortfall of each holder.
Result<Plan> solve_placement(const PlacementProblem& problem, ModeRequest mode, uint32_t epoch);

}  // namespace k3pod

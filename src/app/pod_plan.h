#pragma once
// From the pod file to a placement: which memories there are, what each has left for experts, and
// who holds what. `k3pod plan` prints it, the station serves by it.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/config/pod_config.h"
#include "k3pod/placement/solver.h"
#include "k3pod/weights/model_bytes.h"
#include "k3pod/weights/model_config.h"

namespace k3pod {

struct PlanModel {
    ModelConfig config;
    ModelBytes bytes;
};

// Of a config.json, or of a checkpoint; where neither is named, of the pod file's model folder or,
// on a machine that has none, of NAME.config.json beside the pod file. Messages name the file.
Result<PlanModel> read_plan_model(const PodConfig& pod, const std::string& config_file,
                                  const std::string& checkpoint_dir);

// One holder's memory, from what the machine has down to what is left for experts.
struct MemoryPlan {
    std::string name;                // as a holder of the placement
    int64_t memory_bytes = 0;        // 0: not given, only the budget is
    std::vector<ReserveLine> lines;  // reserve, and where they lie: weights, KDA slots, MLA pages
    // memory less lines, unless the pod file says otherwise; below 0 when the lines do not fit.
    int64_t budget_bytes = 0;
    bool is_budget_given = false;       // expert_budget in the pod file
    int64_t bandwidth_bytes_per_s = 0;  // 0: not given
};

// Limits and pool sizes after the pod file's zeros are filled in.
struct Capacity {
    int32_t max_model_len = 0;     // prompt + output
    bool is_cut_by_cache = false;  // it is what the cache holds, less than was asked for
    int32_t num_pages = 0;         // of the MLA cache
};
Result<Capacity> size_capacity(const PodConfig& pod, const ModelConfig& config);

// In the order of holders: the station's tiers, then the expert servers.
Result<std::vector<MemoryPlan>> plan_memories(const PodConfig& pod, const PlanModel& model);
// Of a placement; memories whose lines do not fit have none.
std::vector<HolderBudget> budgets_of(std::span<const MemoryPlan> memories);

// The format in which the pod file counts experts; what the release has, unless pack = "mxfp4".
Release counted_release(const PodConfig& pod, Release release);
PlacementShape placement_shape(const PodConfig& pod, const PlanModel& model);

struct PodPlan {
    PlacementShape shape;
    std::vector<MemoryPlan> memories;
    BudgetCheck budgets;  // in the plan's mode; of a plan that does not fit, in the better one
    // Nothing when the experts do not fit.
    std::optional<Placement> placement;
    PlacementMode mode = PlacementMode::kWhole;
    // Nothing when the pod file gives no bandwidths: an even fill then, of which no time is known.
    std::optional<PlacementProblem> problem;
    std::optional<Plan> solved;  // its placement is the one above
};

// An infeasible pod is a PodPlan without placement. kInvalidArgument: bandwidths of some holders
// only, a trace that cannot be read or is of another model.
Result<PodPlan> plan_pod(const PodConfig& pod, const PlanModel& model);

// needed, budget and shortfall of every holder in one sentence, for a log.
Status does_not_fit(const PodPlan& plan);

}  // namespace k3pod

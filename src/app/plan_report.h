#pragma once
// A plan for people, for programs and as a picture.

#include <cstdint>
#include <string>
#include <vector>

#include "k3pod/placement/fabric.h"
#include "pod_plan.h"

namespace k3pod {

struct PlanReport {
    const PodConfig& pod;
    const PlanModel& model;
    const PodPlan& plan;
    std::vector<StepTimes> steps;  // of 1, 4, 16 and 64 tokens; empty when no time is known
    // When it does not fit: what would make it fit, the cheapest first.
    std::vector<std::string> remedies;
    FabricReport fabric;  // what the pod file says of cables and power
};

Result<PlanReport> make_plan_report(const PodConfig& pod, const PlanModel& model,
                                    const PodPlan& plan);
// Each sentence is a change to the pod after which everything fits, checked by planning it.
Result<std::vector<std::string>> find_remedies(const PodConfig& pod, const PlanModel& model,
                                               const PodPlan& plan);

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);
// A bar for every holder: what lies in its memory, and how long it takes for a layer.
std::string plan_svg(const PlanReport& report);

}  // namespace k3pod

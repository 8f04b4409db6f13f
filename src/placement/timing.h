#pragma once
// Times of a placement over draws that are shared, so that two placements are compared on the same
// steps.

#include "draws.h"
#include "k3pod/placement/solver.h"

namespace k3pod {

StepTimes times_over(const Placement& placement, const PlacementProblem& problem,
                     const StepDraws& draws, ReplicaUse replicas);

}  // namespace k3pod

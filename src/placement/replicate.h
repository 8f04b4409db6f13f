#pragma once
// Spare room turned into further copies.

#include <cstdint>
#include <span>

#include "k3pod/placement/solver.h"

namespace k3pod {

// Copies of whole experts in the room that `spare_experts` says each holder has: of every layer in
// turn the most read expert of the slowest holders, onto another holder. Sorted by layer and
// expert.
std::vector<Replica> fill_spare_room(const Placement& placement, const PlacementProblem& problem,
                                     const StepTimes& times,
                                     std::span<const int64_t> spare_experts);

}  // namespace k3pod

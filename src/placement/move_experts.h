#pragma once
// Experts moved onto one holder from whoever is last.

#include <span>

#include "k3pod/placement/placement.h"
#include "k3pod/placement/popularity.h"

namespace k3pod {

// How long a holder takes for a layer, as far as moving experts decides it.
struct HolderPace {
    double fixed_s = 0;             // whatever it reads
    double seconds_per_column = 0;  // of an expert that is read in every step
};

// Moves slices to holder `target`, layer by layer the most popular of whoever is expected to be
// last in a step of `rows` rows, until the target would be last itself or has taken `max_columns`,
// of which each layer may use an equal part. Replicas stay. paces: [holders].
void move_experts(Placement& placement, const Popularity& popularity, int32_t rows, int32_t target,
                  int64_t max_columns, std::span<const HolderPace> paces);

}  // namespace k3pod

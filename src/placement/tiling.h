#pragma once
// What every placement must satisfy, wherever it came from.

#include "k3pod/placement/placement.h"

namespace k3pod {

// The counts are positive and not absurd, holders have distinct names, and the slices of every
// expert tile [0, width) once in multiples of kSliceMultiple. kInvalidArgument names layer, expert
// and place.
Status check_tiling(const Placement& placement);

// Fields first_layer, num_layers, num_experts and width.
Status check_counts(int32_t first_layer, int32_t num_layers, int32_t num_experts, int32_t width);

}  // namespace k3pod

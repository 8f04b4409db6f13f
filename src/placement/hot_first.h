#pragma once
// Which experts of a layer go to which group of holders, by how often they are read.

#include <cstdint>
#include <span>
#include <vector>

#include "volumes.h"

namespace k3pod {

// share[expert * num_groups + group]: the part of an expert that a group holds, the parts of an
// expert adding up to 1 and those of a group to its volume of the layer. The time of the slowest
// group is the least that volumes and speeds allow, and of the others the same holds in turn: fast
// groups get the experts that are read most, until they take as long as those behind them.
//
// reads: [experts of the layer], the chance that a step reads each. volumes: of each group, adding
// up to the number of experts.
std::vector<double> split_hot_first(std::span<const double> reads,
                                    std::span<const HolderGroup> groups,
                                    std::span<const double> volumes);

}  // namespace k3pod

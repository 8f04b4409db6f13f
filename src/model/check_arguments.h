#pragma once
// What a model is made from and run with, checked alike by every back end.

#include <cstdint>
#include <span>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/model/model.h"

namespace k3pod {

// Sizes that the ops and kernels are made for, and whether weights and state are those of `config`.
Status check_model_arguments(const ModelConfig& config, const StationWeights& weights,
                             const StateShape& state, int32_t max_rows);

// Whether `logits` is as long as the rows that a step asks for.
Status check_logits(std::span<const float> logits, int32_t num_rows, int32_t vocab);

// Per layer: how many layers of its kind of attention lie below it.
std::vector<int32_t> count_per_kind(const ModelConfig& config);

}  // namespace k3pod

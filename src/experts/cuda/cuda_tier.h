#pragma once
// The tier in a GPU's memory. One graph serves every frame: the frame is copied in, the experts
// run, the sums are copied out and a word tells the host.

#include <memory>

#include "k3pod/experts/expert_tier.h"

namespace k3pod {

// As ExpertTier::load(Backend::kCuda, ...).
Result<std::unique_ptr<ExpertTier>> load_cuda_tier(const ExpertTierSource& source, int32_t max_rows,
                                                   const LoadProgress& progress);

}  // namespace k3pod

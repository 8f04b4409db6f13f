#pragma once
// The tier in a GPU's memory. One graph serves every frame: the frame is copied in, the experts
// run, the sums are copied out and a word tells the host.

#include <memory>

#include "k3pod/experts/tier_builder.h"

namespace k3pod {

// As TierBuilder::create(Backend::kCuda, ...).
Result<std::unique_ptr<TierBuilder>> make_cuda_builder(const ModelConfig& config, Release release,
                                                       std::span<const Shard> shards,
                                                       int32_t max_rows);

}  // namespace k3pod

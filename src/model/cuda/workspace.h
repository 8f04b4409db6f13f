#pragma once
// How much workspace the products of a model need.

#include <cstdint>

#include "k3pod/weights/model_config.h"
#include "model/cuda/device_weights.h"

namespace k3pod {

// The most that any product of a step of up to max_rows rows needs.
int64_t workspace_bytes(const ModelConfig& config, const DeviceWeights& weights, int32_t max_rows);

}  // namespace k3pod

#pragma once

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::kernels {

struct ExpertsParams;

// out[row] = sum over the row's entries and their shards, in order, of weight * y. Leaves
// tiles_done zeroed for the next frame.
Status sum_experts(const ExpertsParams& p, CudaStream stream);

}  // namespace k3pod::kernels

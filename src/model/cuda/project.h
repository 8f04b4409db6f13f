#pragma once
// Products of a step's rows with weights, several matrices in one launch where their formats allow.

#include <cstdint>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/kernels/gemm.h"
#include "model/cuda/step_launch.h"

namespace k3pod {

// y of every band = x W^T. Neighbours of one format share a launch.
Status project(const StepLaunch& step, const kernels::DeviceRows& x,
               std::span<const kernels::GemmBand> bands);

// What project() needs of the workspace for matrices in this order.
int64_t project_workspace_bytes(std::span<const MatrixView> matrices, int32_t max_rows);

// A fp32 matrix of rows without gaps.
inline kernels::DeviceRows dense_rows(const float* data, int64_t width) {
    return {.f32 = data, .bf16 = nullptr, .stride = width};
}
inline kernels::DeviceRowsOut dense_rows_out(float* data, int64_t width) {
    return {.f32 = data, .bf16 = nullptr, .stride = width};
}

}  // namespace k3pod

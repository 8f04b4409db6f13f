#include "model/cuda/mlp.h"

#include "model/cuda/project.h"

namespace k3pod {

Result<CudaMlp> CudaMlp::create(const ModelConfig& config, int32_t max_width, int32_t max_rows) {
    CudaMlp mlp;
    mlp.beta_ = config.situ_beta;
    mlp.linear_beta_ = config.situ_linear_beta;
    mlp.hidden_ = config.hidden;
    K3POD_ASSIGN(mlp.inner_, DeviceRowBuffer::create(max_rows, max_width));
    return mlp;
}

Status CudaMlp::launch(const StepLaunch& step, const DeviceMlp& weights, const float* x,
                       float* y) const {
    const int64_t width = weights.gate_proj.rows;
    K3POD_TRY(kernels::gated_gemm({.tokens = step.rows,
                                   .x = dense_rows(x, hidden_),
                                   .gate = weights.gate_proj,
                                   .up = weights.up_proj,
                                   .beta = beta_,
                                   .linear_beta = linear_beta_,
                                   .y = dense_rows_out(inner_.data(), width),
                                   .workspace = step.workspace},
                                  step.stream));
    const kernels::GemmBand down{.weight = weights.down_proj, .y = dense_rows_out(y, hidden_)};
    return project(step, dense_rows(inner_.data(), width), {&down, 1});
}

}  // namespace k3pod

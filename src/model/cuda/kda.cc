#include "model/cuda/kda.h"

#include "model/cuda/project.h"

namespace k3pod {
namespace {

// Positions of the five parts of P columns in a row of inputs.
enum Part : int64_t { kPartQ, kPartK, kPartV, kPartG, kPartF, kNumParts };

}  // namespace

Result<CudaKda> CudaKda::create(const ModelConfig& config, StateStore& state, int32_t max_rows) {
    CudaKda kda;
    kda.shape_ = {.heads = config.kda_num_heads, .head_dim = config.kda_head_dim};
    kda.hidden_ = config.hidden;
    kda.pools_ = state.pools();
    kda.num_layers_ = state.shape().num_kda_layers;
    const int64_t width = kda.shape_.width();
    kda.recurrent_elements_ = width * config.kda_head_dim;
    kda.conv_elements_ = int64_t{3} * (config.conv_kernel - 1) * width;
    kda.f_a_ = kNumParts * width;
    kda.b_ = kda.f_a_ + config.kda_head_dim;
    const int64_t row = (kda.b_ + config.kda_num_heads + 31) / 32 * 32;
    K3POD_ASSIGN(kda.inputs_, DeviceRowBuffer::create(max_rows, row));
    K3POD_ASSIGN(kda.out_, DeviceRowBuffer::create(max_rows, width));
    K3POD_ASSIGN(kda.workspace_, DeviceBuffer::create(
                                     kernels::kda_workspace_bytes(kda.shape_, max_rows, max_rows)));
    return kda;
}

Status CudaKda::launch(const StepLaunch& step, const DeviceKda& weights, int32_t kda_layer,
                       const float* x, float* y) const {
    K3POD_TRY(project_inputs(step, weights, x));
    const auto part = [&](int64_t index) { return inputs_.data() + index * shape_.width(); };
    K3POD_TRY(step.done(KernelKind::kKdaCore, kernels::kda({.shape = shape_,
                                                            .chunks = step.chunks,
                                                            .weights = weights.parameters,
                                                            .in = {.q = part(kPartQ),
                                                                   .k = part(kPartK),
                                                                   .v = part(kPartV),
                                                                   .f = part(kPartF),
                                                                   .g = part(kPartG),
                                                                   .stride = inputs_.width(),
                                                                   .b = inputs_.data() + b_,
                                                                   .b_stride = inputs_.width()},
                                                            .state = layer_state(kda_layer),
                                                            .y = out_.data(),
                                                            .workspace = workspace_.data(),
                                                            .num_rows = step.rows},
                                                           step.stream)));
    const kernels::GemmBand out{.weight = weights.o_proj, .y = dense_rows_out(y, hidden_)};
    return step.done(KernelKind::kAttentionOut,
                     project(step, dense_rows(out_.data(), shape_.width()), {&out, 1}));
}

Status CudaKda::project_inputs(const StepLaunch& step, const DeviceKda& weights,
                               const float* x) const {
    const auto band = [&](DeviceKda::Input input, int64_t offset) {
        return kernels::GemmBand{.weight = weights.inputs[input],
                                 .y = dense_rows_out(inputs_.data() + offset, inputs_.width())};
    };
    const int64_t width = shape_.width();
    const std::array bands{band(DeviceKda::kQ, kPartQ * width), band(DeviceKda::kK, kPartK * width),
                           band(DeviceKda::kV, kPartV * width), band(DeviceKda::kG, kPartG * width),
                           band(DeviceKda::kFA, f_a_),          band(DeviceKda::kB, b_)};
    K3POD_TRY(project(step, dense_rows(x, hidden_), bands));

    const kernels::GemmBand f{
        .weight = weights.f_b_proj,
        .y = dense_rows_out(inputs_.data() + kPartF * width, inputs_.width())};
    return step.done(KernelKind::kKdaProjections,
                     project(step, dense_rows(inputs_.data() + f_a_, inputs_.width()), {&f, 1}));
}

kernels::KdaLayerState CudaKda::layer_state(int32_t kda_layer) const {
    return {
        .recurrent = reinterpret_cast<float*>(pools_.recurrent) + kda_layer * recurrent_elements_,
        .recurrent_stride = num_layers_ * recurrent_elements_,
        .conv_window = reinterpret_cast<float*>(pools_.conv) + kda_layer * conv_elements_,
        .conv_stride = num_layers_ * conv_elements_};
}

}  // namespace k3pod

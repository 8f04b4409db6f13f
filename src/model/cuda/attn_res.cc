#include "model/cuda/attn_res.h"

#include <utility>

#include "k3pod/kernels/elementwise.h"

namespace k3pod {

Result<CudaAttnRes> CudaAttnRes::create(const ModelConfig& config, int32_t num_blocks,
                                        int32_t max_rows) {
    CudaAttnRes stream;
    stream.hidden_ = config.hidden;
    stream.eps_ = config.rms_norm_eps;
    for (int32_t i = 0; i < num_blocks + 1; ++i) {
        K3POD_ASSIGN(DeviceRowBuffer rows, DeviceRowBuffer::create(max_rows, config.hidden));
        stream.accumulators_.push_back(std::move(rows));
    }
    K3POD_ASSIGN(stream.addend_, DeviceRowBuffer::create(max_rows, config.hidden));
    return stream;
}

float* CudaAttnRes::begin() {
    num_frozen_ = 0;
    starts_anew_ = has_addend_ = false;
    return accumulators_[0].data();
}

Status CudaAttnRes::mix_and_norm(const StepLaunch& step, RowRange rows, const MixWeights& weights,
                                 float* out) {
    const int64_t offset = rows.begin * hidden_;
    std::array<const float*, kernels::kMaxAttnResBlocks> blocks;
    for (size_t i = 0; i < num_frozen_; ++i) blocks[i] = accumulators_[i].data() + offset;
    const bool adds = std::exchange(has_addend_, false);
    return step.done(KernelKind::kAttnRes,
                     kernels::attn_res_mix({.rows = rows.count,
                                            .hidden = static_cast<int32_t>(hidden_),
                                            .blocks = std::span(blocks).first(num_frozen_),
                                            .prefix = accumulators_[num_frozen_].data() + offset,
                                            .addend = adds ? addend_.data() + offset : nullptr,
                                            .mixer = num_frozen_ > 0 ? weights.mixer : nullptr,
                                            .eps = eps_,
                                            .norm_weight = weights.norm,
                                            .norm_eps = eps_,
                                            .out = out},
                                           step.stream));
}

void CudaAttnRes::freeze() {
    ++num_frozen_;
    starts_anew_ = true;
}

float* CudaAttnRes::sublayer_output() {
    if (std::exchange(starts_anew_, false)) return accumulators_[num_frozen_].data();
    has_addend_ = true;
    return addend_.data();
}

Status CudaAttnRes::settle(const StepLaunch& step) {
    if (!std::exchange(has_addend_, false)) return Status::ok();
    return step.done(KernelKind::kAttnRes,
                     kernels::add(addend_.data(), accumulators_[num_frozen_].data(),
                                  step.rows * hidden_, step.stream));
}

}  // namespace k3pod

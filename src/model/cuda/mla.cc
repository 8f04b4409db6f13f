#include "model/cuda/mla.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "k3pod/kernels/norm.h"
#include "model/cuda/project.h"
#include "model/cuda/step_buckets.h"

namespace k3pod {
namespace {

// The most that any step which decodes needs for its splits.
int64_t decode_workspace_bytes(const kernels::MlaDims& dims, int32_t max_rows,
                               int32_t max_context) {
    int64_t bytes = 0;
    for (const int32_t rows : step_buckets(max_rows)) {
        const kernels::StepChunks chunks{.num_chunks = rows, .max_rows = 1};
        const int32_t splits = kernels::mla_num_splits(dims, chunks, max_context);
        if (splits > 1) bytes = std::max(bytes, kernels::mla_workspace_bytes(dims, rows, splits));
    }
    return bytes;
}

}  // namespace

Result<CudaMla> CudaMla::create(const ModelConfig& config, StateStore& state, int32_t max_rows,
                                int32_t max_context) {
    CudaMla mla;
    const kernels::MlaDims dims{.heads = config.num_heads,
                                .nope = config.qk_nope_head_dim,
                                .rope = config.qk_rope_head_dim,
                                .value = config.v_head_dim,
                                .rank = config.kv_lora_rank};
    mla.dims_ = dims;
    mla.q_lora_ = config.q_lora_rank;
    mla.hidden_ = config.hidden;
    mla.scale_ = 1.0f / std::sqrt(static_cast<float>(dims.query_width()));
    mla.max_context_ = max_context;
    mla.pages_ = reinterpret_cast<Bf16*>(state.pools().pages);
    mla.layer_elements_ = int64_t{kPageTokens} * dims.cache_width();
    mla.num_layers_ = state.shape().num_mla_layers;
    const int64_t value_width = int64_t{dims.heads} * dims.value;
    mla.g_ = mla.q_lora_;
    mla.kv_a_ = mla.g_ + value_width;
    const int64_t row = (mla.kv_a_ + dims.cache_width() + 31) / 32 * 32;
    const int64_t heads = dims.heads;
    K3POD_ASSIGN(mla.inputs_, DeviceRowBuffer::create(max_rows, row));
    K3POD_ASSIGN(mla.low_rank_q_, DeviceRowBuffer::create(max_rows, mla.q_lora_));
    K3POD_ASSIGN(mla.q_, DeviceRowBuffer::create(max_rows, heads * dims.query_width()));
    K3POD_ASSIGN(mla.latent_q_, DeviceBuffer::create(max_rows * heads * dims.cache_width() *
                                                     int64_t{sizeof(Bf16)}));
    K3POD_ASSIGN(mla.latent_out_, DeviceRowBuffer::create(max_rows, heads * dims.rank));
    K3POD_ASSIGN(mla.o_, DeviceRowBuffer::create(max_rows, value_width));
    K3POD_ASSIGN(mla.workspace_,
                 DeviceBuffer::create(decode_workspace_bytes(dims, max_rows, max_context)));
    return mla;
}

Status CudaMla::launch(const StepLaunch& step, const DeviceMla& weights, int32_t mla_layer,
                       const float* x, float* y) const {
    K3POD_TRY(step.done(KernelKind::kMlaProjections, project_inputs(step, weights, x)));
    K3POD_TRY(step.done(KernelKind::kMlaAttention, attend(step, weights, mla_layer)));
    const kernels::GemmBand out{.weight = weights.o_proj, .y = dense_rows_out(y, hidden_)};
    return step.done(KernelKind::kAttentionOut,
                     project(step, dense_rows(o_.data(), o_.width()), {&out, 1}));
}

Status CudaMla::project_inputs(const StepLaunch& step, const DeviceMla& weights,
                               const float* x) const {
    const auto band = [&](DeviceMla::Input input, int64_t offset) {
        return kernels::GemmBand{.weight = weights.inputs[input],
                                 .y = dense_rows_out(inputs_.data() + offset, inputs_.width())};
    };
    const std::array bands{band(DeviceMla::kQA, 0), band(DeviceMla::kKvA, kv_a_),
                           band(DeviceMla::kG, g_)};
    K3POD_TRY(project(step, dense_rows(x, hidden_), bands));
    K3POD_TRY(kernels::rms_norm({.rows = step.rows,
                                 .width = q_lora_,
                                 .weight = weights.q_a_norm,
                                 .eps = kMlaLowRankNormEps,
                                 .x = inputs_.data(),
                                 .x_stride = inputs_.width(),
                                 .y = low_rank_q_.data()},
                                step.stream));
    const kernels::GemmBand q{.weight = weights.q_b_proj,
                              .y = dense_rows_out(q_.data(), q_.width())};
    return project(step, dense_rows(low_rank_q_.data(), q_lora_), {&q, 1});
}

Status CudaMla::attend(const StepLaunch& step, const DeviceMla& weights, int32_t mla_layer) const {
    const kernels::MlaCache cache{.pages = pages_ + mla_layer * layer_elements_,
                                  .page_stride = num_layers_ * layer_elements_,
                                  .page_tokens = kPageTokens};
    K3POD_TRY(kernels::mla_write_latents({.dims = dims_,
                                          .chunks = step.chunks,
                                          .kv = inputs_.data() + kv_a_,
                                          .kv_stride = inputs_.width(),
                                          .norm_weight = weights.kv_a_norm,
                                          .eps = kMlaLowRankNormEps,
                                          .cache = cache},
                                         step.stream));
    K3POD_TRY(kernels::mla_absorb_query({.dims = dims_,
                                         .rows = step.rows,
                                         .kv_b = weights.kv_b_proj,
                                         .q = q_.data(),
                                         .scale = scale_,
                                         .latent_q = latent_q_.as<Bf16>()},
                                        step.stream));
    K3POD_TRY(kernels::mla_attend({.dims = dims_,
                                   .chunks = step.chunks,
                                   .rows = step.rows,
                                   .latent_q = latent_q_.as<Bf16>(),
                                   .cache = cache,
                                   .num_splits = num_splits(step),
                                   .workspace = workspace_.data(),
                                   .latent_out = latent_out_.data()},
                                  step.stream));
    return kernels::mla_expand_values({.dims = dims_,
                                       .rows = step.rows,
                                       .kv_b = weights.kv_b_proj,
                                       .latent_out = latent_out_.data(),
                                       .g = inputs_.data() + g_,
                                       .g_stride = inputs_.width(),
                                       .o = o_.data()},
                                      step.stream);
}

// As many as fill the GPU, or as the workspace holds for a step with many rows.
int32_t CudaMla::num_splits(const StepLaunch& step) const {
    int32_t splits = kernels::mla_num_splits(dims_, step.chunks, max_context_);
    while (splits > 1 &&
           kernels::mla_workspace_bytes(dims_, step.rows, splits) > workspace_.size_bytes()) {
        splits /= 2;
    }
    return splits;
}

}  // namespace k3pod

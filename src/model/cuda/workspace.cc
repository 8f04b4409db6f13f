#include "model/cuda/workspace.h"

#include <algorithm>
#include <span>

#include "model/cuda/project.h"

namespace k3pod {
namespace {

class Largest {
  public:
    explicit Largest(int32_t max_rows) : max_rows_(max_rows) {}

    void see(std::span<const MatrixView> together) {
        bytes_ = std::max(bytes_, project_workspace_bytes(together, max_rows_));
    }
    void see(const MatrixView& alone) { see({&alone, 1}); }
    void see(const DeviceMlp& mlp) {
        bytes_ = std::max(bytes_, kernels::gated_gemm_workspace_bytes(mlp.gate_proj, max_rows_));
        see(mlp.down_proj);
    }
    int64_t bytes() const { return bytes_; }

  private:
    int32_t max_rows_;
    int64_t bytes_ = 0;
};

void see_attention(const DeviceLayer& layer, AttentionKind kind, Largest& largest) {
    switch (kind) {
        case AttentionKind::kKda:
            largest.see(std::span<const MatrixView>(layer.kda.inputs));
            largest.see(layer.kda.f_b_proj);
            largest.see(layer.kda.o_proj);
            break;
        case AttentionKind::kMla:
            largest.see(std::span<const MatrixView>(layer.mla.inputs));
            largest.see(layer.mla.q_b_proj);
            largest.see(layer.mla.o_proj);
            break;
    }
}

}  // namespace

int64_t workspace_bytes(const ModelConfig& config, const DeviceWeights& weights, int32_t max_rows) {
    Largest largest(max_rows);
    largest.see(weights.lm_head);
    for (int32_t i = 0; i < config.num_layers; ++i) {
        const DeviceLayer& layer = weights.layers[static_cast<size_t>(i)];
        see_attention(layer, config.attention[static_cast<size_t>(i)], largest);
        if (config.is_moe_layer(i)) {
            largest.see(std::span<const MatrixView>(layer.moe.inputs));
            largest.see(layer.moe.latent_up);
            largest.see(layer.moe.shared);
        } else {
            largest.see(layer.dense);
        }
    }
    return largest.bytes();
}

}  // namespace k3pod

#include "model/cuda/device_weights.h"

#include <algorithm>
#include <utility>

namespace k3pod {
namespace {

// Small pieces share blocks of this size; one that fills half of it has memory of its own.
constexpr int64_t kBlockBytes = int64_t{4} << 20;
constexpr int64_t kAlignment = 256;

int64_t round_up(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Status copy_matrix(const MatrixView& host, const MatrixView& device) {
    K3POD_TRY(copy_to_device(const_cast<std::byte*>(device.data), host.data,
                             matrix_data_bytes(host.format, host.rows, host.cols)));
    return copy_to_device(const_cast<std::byte*>(device.scales), host.scales,
                          matrix_scale_bytes(host.format, host.rows, host.cols));
}

}  // namespace

// Places matrices and vectors one behind the other in blocks of device memory.
class WeightUpload {
  public:
    WeightUpload(const ModelConfig& config, DeviceWeights& out, MatrixWriter write)
        : config_(config), out_(out), write_(std::move(write)) {
        if (!write_) write_ = copy_matrix;
    }

    Status put(const Matrix& matrix, MatrixView& view) {
        const MatrixView& host = matrix.view();
        const int64_t scale_bytes = matrix_scale_bytes(host.format, host.rows, host.cols);
        view = host;
        K3POD_ASSIGN(view.data, take(matrix_data_bytes(host.format, host.rows, host.cols)));
        view.scales = nullptr;
        if (scale_bytes > 0) {
            K3POD_ASSIGN(view.scales, take(scale_bytes));
        }
        return write_(host, view);
    }

    Status put(const Vector& vector, const float*& pointer) {
        const auto bytes = static_cast<int64_t>(vector.size() * sizeof(float));
        K3POD_ASSIGN(std::byte* const to, take(bytes));
        pointer = reinterpret_cast<const float*>(to);
        return copy_to_device(to, vector.data(), bytes);
    }

    Status put(const LayerWeights& host, AttentionKind attention, bool is_moe, DeviceLayer& layer) {
        K3POD_TRY(put(host.input_norm, layer.input_norm));
        K3POD_TRY(put(host.post_attention_norm, layer.post_attention_norm));
        K3POD_TRY(put(host.attention_mixer, layer.attention_mixer));
        K3POD_TRY(put(host.mlp_mixer, layer.mlp_mixer));
        switch (attention) {
            case AttentionKind::kKda:
                K3POD_TRY(put(host.kda, layer.kda));
                break;
            case AttentionKind::kMla:
                K3POD_TRY(put(host.mla, layer.mla));
                break;
        }
        return is_moe ? put(host.moe, layer.moe) : put(host.dense, layer.dense);
    }

  private:
    Status put(const KdaWeights& host, DeviceKda& kda) {
        K3POD_TRY(put(host.q_proj, kda.inputs[DeviceKda::kQ]));
        K3POD_TRY(put(host.k_proj, kda.inputs[DeviceKda::kK]));
        K3POD_TRY(put(host.v_proj, kda.inputs[DeviceKda::kV]));
        K3POD_TRY(put(host.g_proj, kda.inputs[DeviceKda::kG]));
        K3POD_TRY(put(host.f_a_proj, kda.inputs[DeviceKda::kFA]));
        K3POD_TRY(put(host.b_proj, kda.inputs[DeviceKda::kB]));
        K3POD_TRY(put(host.f_b_proj, kda.f_b_proj));
        K3POD_TRY(put(host.o_proj, kda.o_proj));
        kda.parameters.lower_bound = config_.gate_lower_bound;
        kda.parameters.l2_eps = kKdaL2NormEps;
        kda.parameters.norm_eps = config_.rms_norm_eps;
        K3POD_TRY(put(host.q_conv, kda.parameters.q_conv));
        K3POD_TRY(put(host.k_conv, kda.parameters.k_conv));
        K3POD_TRY(put(host.v_conv, kda.parameters.v_conv));
        K3POD_TRY(put(host.a_log, kda.parameters.a_log));
        K3POD_TRY(put(host.dt_bias, kda.parameters.dt_bias));
        return put(host.o_norm, kda.parameters.o_norm);
    }

    Status put(const MlaWeights& host, DeviceMla& mla) {
        K3POD_TRY(put(host.q_a_proj, mla.inputs[DeviceMla::kQA]));
        K3POD_TRY(put(host.kv_a_proj, mla.inputs[DeviceMla::kKvA]));
        K3POD_TRY(put(host.g_proj, mla.inputs[DeviceMla::kG]));
        K3POD_TRY(put(host.q_b_proj, mla.q_b_proj));
        K3POD_TRY(put(host.kv_b_proj, mla.kv_b_proj));
        K3POD_TRY(put(host.o_proj, mla.o_proj));
        K3POD_TRY(put(host.q_a_norm, mla.q_a_norm));
        return put(host.kv_a_norm, mla.kv_a_norm);
    }

    Status put(const MlpWeights& host, DeviceMlp& mlp) {
        K3POD_TRY(put(host.gate_proj, mlp.gate_proj));
        K3POD_TRY(put(host.up_proj, mlp.up_proj));
        return put(host.down_proj, mlp.down_proj);
    }

    Status put(const MoeWeights& host, DeviceMoe& moe) {
        K3POD_TRY(put(host.router, moe.inputs[DeviceMoe::kRouter]));
        K3POD_TRY(put(host.latent_down, moe.inputs[DeviceMoe::kLatentDown]));
        K3POD_TRY(put(host.latent_up, moe.latent_up));
        K3POD_TRY(put(host.router_bias, moe.router_bias));
        K3POD_TRY(put(host.routed_norm, moe.routed_norm));
        return put(host.shared, moe.shared);
    }

    Result<std::byte*> take(int64_t bytes) {
        if (bytes >= kBlockBytes / 2) return allocate(bytes);
        if (block_ == nullptr || used_ + bytes > kBlockBytes) {
            K3POD_ASSIGN(block_, allocate(kBlockBytes));
            used_ = 0;
        }
        std::byte* const begin = block_ + used_;
        used_ += round_up(bytes);
        return begin;
    }

    Result<std::byte*> allocate(int64_t bytes) {
        K3POD_ASSIGN(DeviceBuffer buffer, DeviceBuffer::create(bytes));
        out_.memory_.push_back(std::move(buffer));
        return out_.memory_.back().data();
    }

    const ModelConfig& config_;
    DeviceWeights& out_;
    MatrixWriter write_;
    std::byte* block_ = nullptr;  // of the small pieces
    int64_t used_ = 0;
};

Result<DeviceWeights> DeviceWeights::upload(const ModelConfig& config, StationWeights weights,
                                            const MatrixWriter& write) {
    DeviceWeights out;
    WeightUpload upload(config, out, write);
    K3POD_TRY(upload.put(weights.embed, out.embed));
    K3POD_TRY(upload.put(weights.lm_head, out.lm_head));
    K3POD_TRY(upload.put(weights.final_norm, out.final_norm));
    K3POD_TRY(upload.put(weights.output_mixer, out.output_mixer));
    weights.embed = {};
    weights.lm_head = {};
    for (int32_t i = 0; i < config.num_layers; ++i) {
        LayerWeights& host = weights.layers[static_cast<size_t>(i)];
        K3POD_TRY(upload.put(host, config.attention[static_cast<size_t>(i)], config.is_moe_layer(i),
                             out.layers.emplace_back()));
        host = {};
    }
    return out;
}

}  // namespace k3pod

#include "bench/station/k3_model.h"

#include <random>

namespace k3pod::bench {
namespace {

constexpr auto kFp8 = WeightFormat::kFp8Tile;
constexpr auto kBf16 = WeightFormat::kBf16;

class WeightMaker {
  public:
    explicit WeightMaker(const ModelConfig& config) : c_(config) {}

    StationWeights make() {
        StationWeights weights;
        weights.embed = Matrix(kBf16, c_.vocab, c_.hidden);
        weights.lm_head = Matrix(kBf16, c_.vocab, c_.hidden);
        weights.final_norm = ones(c_.hidden);
        weights.output_mixer = random(c_.hidden, 0.02f);
        for (int32_t i = 0; i < c_.num_layers; ++i) weights.layers.push_back(layer(i));
        return weights;
    }

  private:
    LayerWeights layer(int32_t index) {
        LayerWeights layer;
        layer.input_norm = ones(c_.hidden);
        layer.post_attention_norm = ones(c_.hidden);
        layer.attention_mixer = random(c_.hidden, 0.02f);
        layer.mlp_mixer = random(c_.hidden, 0.02f);
        switch (c_.attention[static_cast<size_t>(index)]) {
            case AttentionKind::kKda:
                layer.kda = kda();
                break;
            case AttentionKind::kMla:
                layer.mla = mla();
                break;
        }
        if (c_.is_moe_layer(index)) {
            layer.moe = moe();
        } else {
            layer.dense = mlp(c_.intermediate);
        }
        return layer;
    }

    KdaWeights kda() {
        const int32_t width = c_.kda_width();
        KdaWeights kda;
        for (Matrix* matrix : {&kda.q_proj, &kda.k_proj, &kda.v_proj, &kda.g_proj})
            *matrix = Matrix(kFp8, width, c_.hidden);
        kda.o_proj = Matrix(kFp8, c_.hidden, width);
        kda.f_a_proj = Matrix(kFp8, c_.kda_head_dim, c_.hidden);
        kda.f_b_proj = Matrix(kFp8, width, c_.kda_head_dim);
        kda.b_proj = Matrix(kFp8, c_.kda_num_heads, c_.hidden);
        for (Vector* vector : {&kda.q_conv, &kda.k_conv, &kda.v_conv})
            *vector = random(width * c_.conv_kernel, 0.5f);
        kda.a_log = random(c_.kda_num_heads, 1);
        kda.dt_bias = random(width, 1);
        kda.o_norm = ones(c_.kda_head_dim);
        return kda;
    }

    MlaWeights mla() {
        const int32_t heads = c_.num_heads;
        MlaWeights mla;
        mla.q_a_proj = Matrix(kFp8, c_.q_lora_rank, c_.hidden);
        mla.q_b_proj =
            Matrix(kFp8, heads * (c_.qk_nope_head_dim + c_.qk_rope_head_dim), c_.q_lora_rank);
        mla.kv_a_proj = Matrix(kFp8, c_.mla_cache_width(), c_.hidden);
        mla.kv_b_proj =
            Matrix(kFp8, heads * (c_.qk_nope_head_dim + c_.v_head_dim), c_.kv_lora_rank);
        mla.g_proj = Matrix(kFp8, heads * c_.v_head_dim, c_.hidden);
        mla.o_proj = Matrix(kFp8, c_.hidden, heads * c_.v_head_dim);
        mla.q_a_norm = ones(c_.q_lora_rank);
        mla.kv_a_norm = ones(c_.kv_lora_rank);
        return mla;
    }

    MoeWeights moe() {
        MoeWeights moe;
        moe.router = Matrix(kBf16, c_.num_experts, c_.hidden);
        moe.router_bias = random(c_.num_experts, 0.01f);
        moe.latent_down = Matrix(kBf16, c_.latent, c_.hidden);
        moe.latent_up = Matrix(kBf16, c_.hidden, c_.latent);
        moe.routed_norm = ones(c_.latent);
        moe.shared = mlp(c_.shared_width());
        return moe;
    }

    MlpWeights mlp(int32_t width) const {
        MlpWeights mlp;
        mlp.gate_proj = Matrix(kBf16, width, c_.hidden);
        mlp.up_proj = Matrix(kBf16, width, c_.hidden);
        mlp.down_proj = Matrix(kBf16, c_.hidden, width);
        return mlp;
    }

    static Vector ones(int32_t count) { return Vector(static_cast<size_t>(count), 1.0f); }
    Vector random(int32_t count, float largest) {
        std::uniform_real_distribution<float> draw(-largest, largest);
        Vector vector(static_cast<size_t>(count));
        for (float& value : vector) value = draw(random_);
        return vector;
    }

    const ModelConfig& c_;
    std::mt19937 random_{20261130};
};

int64_t bytes_of(const Matrix& matrix) {
    const MatrixView& view = matrix.view();
    return matrix_data_bytes(view.format, view.rows, view.cols) +
           matrix_scale_bytes(view.format, view.rows, view.cols);
}

int64_t bytes_of(const MlpWeights& mlp) {
    return bytes_of(mlp.gate_proj) + bytes_of(mlp.up_proj) + bytes_of(mlp.down_proj);
}

int64_t bytes_of(const LayerWeights& layer) {
    int64_t bytes = bytes_of(layer.dense) + bytes_of(layer.moe.shared);
    const KdaWeights& kda = layer.kda;
    const MlaWeights& mla = layer.mla;
    const MoeWeights& moe = layer.moe;
    for (const Matrix* matrix :
         {&kda.q_proj, &kda.k_proj, &kda.v_proj, &kda.g_proj, &kda.o_proj, &kda.f_a_proj,
          &kda.f_b_proj, &kda.b_proj, &mla.q_a_proj, &mla.q_b_proj, &mla.kv_a_proj, &mla.kv_b_proj,
          &mla.g_proj, &mla.o_proj, &moe.router, &moe.latent_down, &moe.latent_up}) {
        bytes += bytes_of(*matrix);
    }
    return bytes;
}

}  // namespace

ModelConfig k3_config(int32_t num_layers) {
    ModelConfig config;
    config.num_layers = num_layers;
    config.hidden = 7168;
    config.vocab = 163840;
    config.num_heads = 96;
    config.q_lora_rank = 1536;
    config.kv_lora_rank = 512;
    config.qk_nope_head_dim = 128;
    config.qk_rope_head_dim = 64;
    config.v_head_dim = 128;
    config.kda_num_heads = 96;
    config.kda_head_dim = 128;
    config.conv_kernel = 4;
    config.gate_lower_bound = -5;
    // Every fourth layer and the last one of the 93 are MLA.
    for (int32_t i = 0; i < num_layers; ++i) {
        const bool is_mla = i % 4 == 3 || i == 92;
        config.attention.push_back(is_mla ? AttentionKind::kMla : AttentionKind::kKda);
    }
    config.first_dense_layers = 1;
    config.intermediate = 33792;
    config.moe_intermediate = 3072;
    config.num_experts = 896;
    config.top_k = 16;
    config.num_shared_experts = 2;
    config.latent = 3584;
    config.situ_beta = 4;
    config.situ_linear_beta = 25;
    config.attn_res_block = 12;
    config.rms_norm_eps = 1e-5f;
    config.max_position_embeddings = 1 << 20;
    return config;
}

StationWeights k3_weights(const ModelConfig& config) {
    return WeightMaker(config).make();
}

int64_t streamed_weight_bytes(const ModelConfig& config, const StationWeights& weights) {
    int64_t bytes = bytes_of(weights.lm_head);
    for (int32_t i = 0; i < config.num_layers; ++i)
        bytes += bytes_of(weights.layers[static_cast<size_t>(i)]);
    return bytes;
}

int64_t state_bytes_per_sequence(const ModelConfig& config, int64_t context) {
    const int64_t width = config.kda_width();
    const int64_t kda_values = width * config.kda_head_dim + 3 * (config.conv_kernel - 1) * width;
    return config.num_kda_layers() * 2 * kda_values * int64_t{sizeof(float)} +
           config.num_mla_layers() * context * config.mla_cache_width() * int64_t{sizeof(Bf16)};
}

}  // namespace k3pod::bench

#include "tests/support/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace k3pod::testing {
namespace {

class RandomWeights {
  public:
    explicit RandomWeights(uint64_t seed) : engine_(seed) {}

    // Entries of about 1 / sqrt(cols), so that a product keeps the size of its input.
    Matrix matrix(WeightFormat format, int32_t rows, int32_t cols) {
        Matrix m(format, rows, cols);
        const float size = 1.0f / std::sqrt(static_cast<float>(cols));
        const int64_t elements = int64_t{rows} * cols;
        for (int64_t i = 0; i < elements; ++i) store(m, format, i, draw() * size);
        return m;
    }

    Vector vector(int32_t n, float mean, float spread) {
        Vector v(static_cast<size_t>(n));
        std::ranges::generate(v, [&] { return mean + spread * draw(); });
        return v;
    }

  private:
    // Uniform in [-1.7, 1.7): unit variance, and the same bits with every standard library.
    float draw() { return (static_cast<float>(engine_() >> 40) * 0x1p-23f - 1.0f) * 1.7f; }

    static void store(Matrix& m, WeightFormat format, int64_t i, float value) {
        if (format == WeightFormat::kF32) {
            std::memcpy(m.mutable_data().data() + i * 4, &value, 4);
        } else {
            const Bf16 rounded = to_bf16(value);
            std::memcpy(m.mutable_data().data() + i * 2, &rounded, 2);
        }
    }

    std::mt19937_64 engine_;
};

KdaWeights kda_weights(const ModelConfig& c, RandomWeights& random) {
    const auto matrix = [&](int32_t rows, int32_t cols) {
        return random.matrix(WeightFormat::kF32, rows, cols);
    };
    const int32_t width = c.kda_width();
    return {.q_proj = matrix(width, c.hidden),
            .k_proj = matrix(width, c.hidden),
            .v_proj = matrix(width, c.hidden),
            .g_proj = matrix(width, c.hidden),
            .o_proj = matrix(c.hidden, width),
            .f_a_proj = matrix(c.kda_head_dim, c.hidden),
            .f_b_proj = matrix(width, c.kda_head_dim),
            .b_proj = matrix(c.kda_num_heads, c.hidden),
            .q_conv = random.vector(width * c.conv_kernel, 0.2f, 0.3f),
            .k_conv = random.vector(width * c.conv_kernel, 0.2f, 0.3f),
            .v_conv = random.vector(width * c.conv_kernel, 0.2f, 0.3f),
            .a_log = random.vector(c.kda_num_heads, 0.0f, 0.5f),
            .dt_bias = random.vector(width, -1.0f, 1.0f),
            .o_norm = random.vector(c.kda_head_dim, 1.0f, 0.1f)};
}

MlaWeights mla_weights(const ModelConfig& c, RandomWeights& random) {
    const auto matrix = [&](int32_t rows, int32_t cols) {
        return random.matrix(WeightFormat::kBf16, rows, cols);
    };
    const int32_t heads = c.num_heads;
    return {.q_a_proj = matrix(c.q_lora_rank, c.hidden),
            .q_b_proj = matrix(heads * (c.qk_nope_head_dim + c.qk_rope_head_dim), c.q_lora_rank),
            .kv_a_proj = matrix(c.mla_cache_width(), c.hidden),
            .kv_b_proj = matrix(heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank),
            .g_proj = matrix(heads * c.v_head_dim, c.hidden),
            .o_proj = matrix(c.hidden, heads * c.v_head_dim),
            .q_a_norm = random.vector(c.q_lora_rank, 1.0f, 0.1f),
            .kv_a_norm = random.vector(c.kv_lora_rank, 1.0f, 0.1f)};
}

MlpWeights mlp_weights(const ModelConfig& c, int32_t width, RandomWeights& random) {
    return {.gate_proj = random.matrix(WeightFormat::kBf16, width, c.hidden),
            .up_proj = random.matrix(WeightFormat::kBf16, width, c.hidden),
            .down_proj = random.matrix(WeightFormat::kBf16, c.hidden, width)};
}

MoeWeights moe_weights(const ModelConfig& c, RandomWeights& random) {
    return {.router = random.matrix(WeightFormat::kBf16, c.num_experts, c.hidden),
            .router_bias = random.vector(c.num_experts, 0.0f, 0.05f),
            .latent_down = random.matrix(WeightFormat::kBf16, c.latent, c.hidden),
            .latent_up = random.matrix(WeightFormat::kBf16, c.hidden, c.latent),
            .routed_norm = random.vector(c.latent, 1.0f, 0.1f),
            .shared = mlp_weights(c, c.shared_width(), random)};
}

LayerWeights layer_weights(const ModelConfig& c, int32_t layer, RandomWeights& random) {
    LayerWeights w;
    w.input_norm = random.vector(c.hidden, 1.0f, 0.1f);
    w.post_attention_norm = random.vector(c.hidden, 1.0f, 0.1f);
    w.attention_mixer = random.vector(c.hidden, 0.0f, 0.2f);
    w.mlp_mixer = random.vector(c.hidden, 0.0f, 0.2f);
    if (c.attention[static_cast<size_t>(layer)] == AttentionKind::kKda) {
        w.kda = kda_weights(c, random);
    } else {
        w.mla = mla_weights(c, random);
    }
    if (c.is_moe_layer(layer)) {
        w.moe = moe_weights(c, random);
    } else {
        w.dense = mlp_weights(c, c.intermediate, random);
    }
    return w;
}

}  // namespace

ModelConfig synthetic_config() {
    using enum AttentionKind;
    ModelConfig c;
    c.num_layers = 7;
    c.hidden = 48;
    c.vocab = 101;
    c.num_heads = 3;
    c.q_lora_rank = 24;
    c.kv_lora_rank = 32;
    c.qk_nope_head_dim = 16;
    c.qk_rope_head_dim = 8;
    c.v_head_dim = 16;
    c.kda_num_heads = 2;
    c.kda_head_dim = 32;
    c.conv_kernel = 4;
    c.gate_lower_bound = -5.0f;
    c.attention = {kKda, kKda, kMla, kKda, kKda, kMla, kMla};
    c.first_dense_layers = 2;
    c.intermediate = 80;
    c.moe_intermediate = 32;
    c.num_experts = 10;
    c.top_k = 3;
    c.num_shared_experts = 2;
    c.latent = 40;
    c.situ_beta = 4.0f;
    c.situ_linear_beta = 25.0f;
    c.attn_res_block = 3;
    c.rms_norm_eps = 1e-5f;
    c.max_position_embeddings = 1024;
    return c;
}

StationWeights synthetic_weights(const ModelConfig& config, uint64_t seed) {
    RandomWeights random(seed);
    StationWeights w;
    w.embed = random.matrix(WeightFormat::kBf16, config.vocab, config.hidden);
    w.lm_head = random.matrix(WeightFormat::kBf16, config.vocab, config.hidden);
    w.final_norm = random.vector(config.hidden, 1.0f, 0.1f);
    w.output_mixer = random.vector(config.hidden, 0.0f, 0.2f);
    for (int32_t layer = 0; layer < config.num_layers; ++layer) {
        w.layers.push_back(layer_weights(config, layer, random));
    }
    return w;
}

Status FakeExperts::dispatch(const RoutedRows& rows) {
    last = rows;
    ++num_dispatches;
    return Status::ok();
}

Status FakeExperts::combine(std::span<float> out) {
    ++num_combines;
    if (last.layer == fail_combine_of_layer) return unavailable("spark-1 is gone");
    const auto latent = static_cast<size_t>(last.latent), top_k = static_cast<size_t>(last.top_k);
    for (size_t i = 0; i < out.size(); ++i) {
        const size_t row = i / latent;
        float sum = 0;
        for (size_t k = row * top_k; k < (row + 1) * top_k; ++k) {
            const float factor =
                static_cast<float>(last.experts[k] + 1) / static_cast<float>(num_experts_);
            sum += last.weights[k] * factor * last.latents[i];
        }
        out[i] = sum;
    }
    return Status::ok();
}

}  // namespace k3pod::testing

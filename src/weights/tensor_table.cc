#include "tensor_table.h"

#include <fmt/format.h>

namespace k3pod {
namespace {

constexpr std::string_view kModel = "language_model.model.";

// Adds tensors whose names share a prefix.
class Scope {
  public:
    Scope(StationTable& table, std::string prefix) : table_(table), prefix_(std::move(prefix)) {}

    Scope inside(std::string_view name) const {
        return {table_, prefix_ + std::string(name) + "."};
    }

    void matrix(std::string_view name, int32_t rows, int32_t cols, MatrixRule rule, Matrix& out) {
        table_.matrices.push_back({prefix_ + std::string(name), rows, cols, rule, &out});
    }
    void vector(std::string_view name, DType dtype, std::vector<int64_t> shape, Vector& out,
                VectorUse use = VectorUse::kValues) {
        table_.vectors.push_back({prefix_ + std::string(name), dtype, std::move(shape), use, &out});
    }
    void norm(std::string_view name, int32_t size, Vector& out) {
        vector(fmt::format("{}.weight", name), DType::kBf16, {size}, out);
    }
    void mixer(std::string_view name, int32_t hidden, Vector& out) {
        vector(fmt::format("{}_norm.weight", name), DType::kBf16, {hidden}, out,
               VectorUse::kFactor);
        vector(fmt::format("{}_proj.weight", name), DType::kBf16, {1, hidden}, out,
               VectorUse::kFactor);
    }

  private:
    StationTable& table_;
    std::string prefix_;
};

void add_kda(Scope t, const ModelConfig& c, KdaWeights& w) {
    constexpr auto kRule = MatrixRule::kAttention;
    const int32_t width = c.kda_width();
    t.matrix("q_proj", width, c.hidden, kRule, w.q_proj);
    t.matrix("k_proj", width, c.hidden, kRule, w.k_proj);
    t.matrix("v_proj", width, c.hidden, kRule, w.v_proj);
    t.matrix("g_proj", width, c.hidden, kRule, w.g_proj);
    t.matrix("o_proj", c.hidden, width, kRule, w.o_proj);
    t.matrix("f_a_proj", c.kda_head_dim, c.hidden, kRule, w.f_a_proj);
    t.matrix("f_b_proj", width, c.kda_head_dim, kRule, w.f_b_proj);
    t.matrix("b_proj", c.kda_num_heads, c.hidden, kRule, w.b_proj);
    t.vector("q_conv1d.weight", DType::kF32, {width, 1, c.conv_kernel}, w.q_conv);
    t.vector("k_conv1d.weight", DType::kF32, {width, 1, c.conv_kernel}, w.k_conv);
    t.vector("v_conv1d.weight", DType::kF32, {width, 1, c.conv_kernel}, w.v_conv);
    t.vector("A_log", DType::kF32, {c.kda_num_heads}, w.a_log, VectorUse::kPadded);
    t.vector("dt_bias", DType::kF32, {width}, w.dt_bias);
    t.vector("o_norm.weight", DType::kF32, {c.kda_head_dim}, w.o_norm);
}

void add_mla(Scope t, const ModelConfig& c, MlaWeights& w) {
    constexpr auto kRule = MatrixRule::kAttention;
    const int32_t width = c.num_heads * c.v_head_dim;
    const int32_t query = c.num_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
    const int32_t key_value = c.num_heads * (c.qk_nope_head_dim + c.v_head_dim);
    t.matrix("q_a_proj", c.q_lora_rank, c.hidden, kRule, w.q_a_proj);
    t.matrix("q_b_proj", query, c.q_lora_rank, kRule, w.q_b_proj);
    t.matrix("kv_a_proj_with_mqa", c.mla_cache_width(), c.hidden, kRule, w.kv_a_proj);
    t.matrix("kv_b_proj", key_value, c.kv_lora_rank, kRule, w.kv_b_proj);
    t.matrix("g_proj", width, c.hidden, kRule, w.g_proj);
    t.matrix("o_proj", c.hidden, width, kRule, w.o_proj);
    t.norm("q_a_layernorm", c.q_lora_rank, w.q_a_norm);
    t.norm("kv_a_layernorm", c.kv_lora_rank, w.kv_a_norm);
}

void add_mlp(Scope t, int32_t hidden, int32_t width, MlpWeights& w) {
    t.matrix("gate_proj", width, hidden, MatrixRule::kLinear, w.gate_proj);
    t.matrix("up_proj", width, hidden, MatrixRule::kLinear, w.up_proj);
    t.matrix("down_proj", hidden, width, MatrixRule::kLinear, w.down_proj);
}

void add_moe(Scope t, const ModelConfig& c, MoeWeights& w) {
    constexpr auto kRule = MatrixRule::kPlain;
    t.matrix("gate", c.num_experts, c.hidden, kRule, w.router);
    t.vector("gate.e_score_correction_bias", DType::kF32, {c.num_experts}, w.router_bias);
    t.matrix("routed_expert_down_proj", c.latent, c.hidden, kRule, w.latent_down);
    t.matrix("routed_expert_up_proj", c.hidden, c.latent, kRule, w.latent_up);
    t.norm("routed_expert_norm", c.latent, w.routed_norm);
    add_mlp(t.inside("shared_experts"), c.hidden, c.shared_width(), w.shared);
}

void add_layer(Scope t, const ModelConfig& c, int32_t layer, LayerWeights& w) {
    t.norm("input_layernorm", c.hidden, w.input_norm);
    t.norm("post_attention_layernorm", c.hidden, w.post_attention_norm);
    t.mixer("self_attention_res", c.hidden, w.attention_mixer);
    t.mixer("mlp_res", c.hidden, w.mlp_mixer);
    switch (c.attention[static_cast<size_t>(layer)]) {
        case AttentionKind::kKda:
            add_kda(t.inside("self_attn"), c, w.kda);
            break;
        case AttentionKind::kMla:
            add_mla(t.inside("self_attn"), c, w.mla);
            break;
    }
    if (c.is_moe_layer(layer)) {
        add_moe(t.inside("block_sparse_moe"), c, w.moe);
    } else {
        add_mlp(t.inside("mlp"), c.hidden, c.intermediate, w.dense);
    }
}

}  // namespace

StationTable station_table(const ModelConfig& c, StationWeights& weights) {
    StationTable table;
    Scope root(table, "language_model.");
    root.matrix("lm_head", c.vocab, c.hidden, MatrixRule::kLinear, weights.lm_head);
    Scope model = root.inside("model");
    model.matrix("embed_tokens", c.vocab, c.hidden, MatrixRule::kPlain, weights.embed);
    model.norm("norm", c.hidden, weights.final_norm);
    model.mixer("output_attn_res", c.hidden, weights.output_mixer);
    weights.layers = std::vector<LayerWeights>(static_cast<size_t>(c.num_layers));
    for (int32_t layer = 0; layer < c.num_layers; ++layer) {
        add_layer(model.inside(fmt::format("layers.{}", layer)), c, layer,
                  weights.layers[static_cast<size_t>(layer)]);
    }
    return table;
}

std::string expert_module(int32_t layer, int32_t expert, Projection projection) {
    constexpr std::string_view kNames[] = {"w1", "w2", "w3"};
    return fmt::format("{}layers.{}.block_sparse_moe.experts.{}.{}", kModel, layer, expert,
                       kNames[static_cast<size_t>(projection)]);
}

std::vector<ExpertTensor> expert_tensors(const ModelConfig& config, Release release,
                                         Projection projection) {
    const bool is_down = projection == Projection::kW2;
    const int64_t rows = is_down ? config.latent : config.moe_intermediate;
    const int64_t cols = is_down ? config.moe_intermediate : config.latent;
    switch (release) {
        case Release::kNvfp4:
            return {{".weight", DType::kU8, {rows, cols / 2}},
                    {".weight_scale", DType::kF8E4M3, {rows, cols / 16}},
                    {".weight_scale_2", DType::kF32, {}},
                    {".input_scale", DType::kF32, {}}};
        case Release::kMxfp4:
            return {{".weight_packed", DType::kU8, {rows, cols / 2}},
                    {".weight_scale", DType::kU8, {rows, cols / 32}}};
    }
    return {};
}

bool is_vision_tensor(std::string_view name) {
    return name.starts_with("vision_tower.") || name.starts_with("mm_projector.");
}

}  // namespace k3pod

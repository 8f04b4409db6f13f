#include "k3pod/weights/model_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "config_fields.h"
#include "k3pod/base/file.h"
#include "k3pod/base/not_json.h"
#include "quantization_config.h"

namespace k3pod {
namespace {

using IntegerRange = ConfigFields::IntegerRange;

// Far above any model of this family, low enough that products of two fit 64 bits with room to
// spare.
constexpr int64_t kMaxWidth = 1 << 18;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kBlock = 32;  // Kernels and FP4 scales work on blocks of this many values.
constexpr IntegerRange kWidth{kBlock, kMaxWidth, kBlock};
constexpr IntegerRange kHeadDim{kBlock, kMaxHeadDim, kBlock};

void read_attention_kinds(ConfigFields& linear, ModelConfig& config) {
    const IntegerRange layer_number{1, std::max(config.num_layers, 1)};  // The file counts from 1.
    std::vector<int> times_listed(static_cast<size_t>(config.num_layers), 0);
    config.attention.assign(times_listed.size(), AttentionKind::kKda);
    for (const int32_t number : linear.integers("kda_layers", layer_number)) {
        ++times_listed[static_cast<size_t>(number - 1)];
    }
    for (const int32_t number : linear.integers("full_attn_layers", layer_number)) {
        ++times_listed[static_cast<size_t>(number - 1)];
        config.attention[static_cast<size_t>(number - 1)] = AttentionKind::kMla;
    }
    for (size_t i = 0; i < times_listed.size(); ++i) {
        if (times_listed[i] == 1) continue;
        linear.refuse(
            "full_attn_layers",
            fmt::format("every layer from 1 to {} once in full_attn_layers or kda_layers; "
                        "layer {} is there {} times",
                        config.num_layers, i + 1, times_listed[i]));
        return;
    }
}

void read_kda(ConfigFields& text, ModelConfig& config) {
    ConfigFields linear = text.object("linear_attn_config");
    config.kda_num_heads = linear.integer("num_heads", {1, kMaxHeads});
    config.kda_head_dim = linear.integer("head_dim", kHeadDim);
    config.conv_kernel = linear.integer("short_conv_kernel_size", {1, 16});
    // A prefill chunk of 16 tokens sums 16 gates; below -5 their exponentials leave the range of
    // fp32.
    config.gate_lower_bound = linear.number("gate_lower_bound", {-5.0, -0.001});
    linear.require_bool("use_full_rank_gate", true);
    read_attention_kinds(linear, config);
}

void read_mla(ConfigFields& text, ModelConfig& config) {
    config.num_heads = text.integer("num_attention_heads", {1, kMaxHeads});
    text.require_integer("num_key_value_heads", config.num_heads);
    config.q_lora_rank = text.integer("q_lora_rank", kWidth);
    config.kv_lora_rank = text.integer("kv_lora_rank", kWidth);
    config.qk_nope_head_dim = text.integer("qk_nope_head_dim", kHeadDim);
    config.qk_rope_head_dim = text.integer("qk_rope_head_dim", kHeadDim);
    config.v_head_dim = text.integer("v_head_dim", kHeadDim);
    text.require_bool("mla_use_nope", true);
    text.require_bool("mla_use_output_gate", true);
    text.require_absent("rope_scaling");
    text.require_absent("rope_parameters");
}

void read_moe(ConfigFields& text, ModelConfig& config) {
    config.first_dense_layers =
        text.integer("first_k_dense_replace", {0, std::max(config.num_layers - 1, 0)});
    text.require_integer("moe_layer_freq", 1);
    config.intermediate = text.integer("intermediate_size", kWidth);
    config.moe_intermediate = text.integer("moe_intermediate_size", kWidth);
    config.num_experts =
        text.integer("num_experts", {1, 65535});  // An expert is a u16 on the wire.
    config.top_k = text.integer("num_experts_per_token", {1, std::max(config.num_experts, 1)});
    config.num_shared_experts = text.integer("num_shared_experts", {1, 64});
    config.latent = text.integer("routed_expert_hidden_size", kWidth);
    config.routed_scaling_factor = text.number("routed_scaling_factor", {1e-6, 1e6});
    text.require_bool("latent_moe_use_norm", true);
    text.require_text("moe_router_activation_func", "sigmoid");
    text.require_text("topk_method", "noaux_tc");
    text.require_integer("num_expert_group", 1);
    text.require_integer("topk_group", 1);
    text.require_bool("moe_renormalize", true);
}

void read_text_model(ConfigFields& text, ModelConfig& config) {
    text.require_text("model_type", "kimi_linear");
    config.num_layers = text.integer("num_hidden_layers", {1, 4096});
    config.hidden = text.integer("hidden_size", kWidth);
    config.vocab = text.integer("vocab_size", {1, 1 << 24});
    text.require_text("hidden_act", "situ");
    config.situ_beta = text.number("activation_situ_beta", {1e-3, 1e6});
    config.situ_linear_beta = text.number("activation_situ_linear_beta", {1e-3, 1e6});
    config.attn_res_block = text.integer("attn_res_block_size", {1, 4096});
    config.rms_norm_eps = text.number("rms_norm_eps", {1e-12, 0.1});
    config.max_position_embeddings = text.integer("max_position_embeddings", {1, 1 << 27});
    text.require_integer("num_nextn_predict_layers", 0);
    read_kda(text, config);
    read_mla(text, config);
    read_moe(text, config);
}

int32_t read_token_id(ConfigFields& root, ConfigFields& text, std::string_view key, int32_t vocab) {
    const int32_t id = root.integer(key, {0, std::max(vocab - 1, 0)});
    if (text.has(key)) text.require_integer(key, id);
    return id;
}

void read_wrapper(ConfigFields& root, ConfigFields& text, ModelConfig& config) {
    root.require_text("model_type", "kimi_k3");
    root.require_bool("tie_word_embeddings", false);
    if (text.has("tie_word_embeddings")) text.require_bool("tie_word_embeddings", false);
    config.bos_id = read_token_id(root, text, "bos_token_id", config.vocab);
    config.eos_id = read_token_id(root, text, "eos_token_id", config.vocab);
    config.pad_id = read_token_id(root, text, "pad_token_id", config.vocab);
    config.media_id = read_token_id(root, text, "media_placeholder_token_id", config.vocab);
}

}  // namespace

int32_t ModelConfig::num_mla_layers() const {
    return static_cast<int32_t>(
        std::count(attention.begin(), attention.end(), AttentionKind::kMla));
}

int32_t ModelConfig::num_kda_layers() const {
    return num_layers - num_mla_layers();
}

Result<ModelConfig> parse_model_config(std::string_view text) {
    simdjson::dom::parser parser;
    simdjson::dom::element document;
    if (const auto error = parser.parse(text.data(), text.size()).get(document)) {
        return invalid_argument(not_json(text, simdjson::error_message(error)));
    }
    Status status;
    ModelConfig config;
    ConfigFields root(document, "", status);
    ConfigFields text_config = root.object("text_config");
    read_text_model(text_config, config);
    read_wrapper(root, text_config, config);
    config.quantization = read_quantization_config(root, text_config);
    K3POD_TRY(status);
    return config;
}

Result<ModelConfig> read_model_config(const std::filesystem::path& dir) {
    const std::filesystem::path path = dir / "config.json";
    K3POD_ASSIGN(const std::string text, read_text_file(path));
    Result<ModelConfig> config = parse_model_config(text);
    if (!config) return config.status().with_context(path.string());
    return config;
}

}  // namespace k3pod

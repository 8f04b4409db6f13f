#include "k3pod/weights/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace k3pod {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json tiny_config() {
    std::ifstream file(K3POD_SOURCE_DIR "/models/k3-tiny/config.json");
    return json::parse(file);
}

// The refusal of k3-tiny's config with the value at `pointer` replaced.
std::string refusal_of(const char* pointer, const json& value) {
    json config = tiny_config();
    config[json::json_pointer(pointer)] = value;
    const auto result = parse_model_config(config.dump());
    return result ? "accepted" : result.status().to_string();
}

std::string refusal_without(const char* object, const char* key) {
    json config = tiny_config();
    config[json::json_pointer(object)].erase(key);
    const auto result = parse_model_config(config.dump());
    return result ? "accepted" : result.status().to_string();
}

TEST(ModelConfig, reads_every_field_of_k3_tiny) {
    const auto result = read_model_config(K3POD_SOURCE_DIR "/models/k3-tiny");
    ASSERT_TRUE(result) << result.status().to_string();
    const ModelConfig& c = *result;
    EXPECT_EQ(c.num_layers, 9);
    EXPECT_EQ(c.hidden, 256);
    EXPECT_EQ(c.vocab, 2304);
    EXPECT_EQ(c.num_heads, 3);
    EXPECT_EQ(c.q_lora_rank, 192);
    EXPECT_EQ(c.kv_lora_rank, 512);
    EXPECT_EQ(c.qk_nope_head_dim, 128);
    EXPECT_EQ(c.qk_rope_head_dim, 64);
    EXPECT_EQ(c.v_head_dim, 128);
    EXPECT_EQ(c.mla_cache_width(), 576);
    EXPECT_EQ(c.kda_num_heads, 3);
    EXPECT_EQ(c.kda_head_dim, 128);
    EXPECT_EQ(c.kda_width(), 384);
    EXPECT_EQ(c.conv_kernel, 4);
    EXPECT_EQ(c.gate_lower_bound, -5.0f);
    EXPECT_EQ(c.first_dense_layers, 1);
    EXPECT_EQ(c.intermediate, 768);
    EXPECT_EQ(c.moe_intermediate, 128);
    EXPECT_EQ(c.num_experts, 32);
    EXPECT_EQ(c.top_k, 4);
    EXPECT_EQ(c.shared_width(), 256);
    EXPECT_EQ(c.latent, 128);
    EXPECT_EQ(c.routed_scaling_factor, 1.0f);
    EXPECT_EQ(c.situ_beta, 4.0f);
    EXPECT_EQ(c.situ_linear_beta, 25.0f);
    EXPECT_EQ(c.attn_res_block, 4);
    EXPECT_EQ(c.rms_norm_eps, 1e-5f);
    EXPECT_EQ(c.max_position_embeddings, 8192);
    EXPECT_EQ(c.bos_id, 2048);
    EXPECT_EQ(c.eos_id, 2050);
    EXPECT_EQ(c.pad_id, 2303);
    EXPECT_EQ(c.media_id, 2069);
}

TEST(ModelConfig, layer_lists_of_the_file_count_from_one) {
    const auto config = read_model_config(K3POD_SOURCE_DIR "/models/k3-tiny");
    ASSERT_TRUE(config) << config.status().to_string();
    using enum AttentionKind;
    EXPECT_EQ(config->attention,
              (std::vector<AttentionKind>{kKda, kKda, kKda, kMla, kKda, kKda, kKda, kMla, kMla}));
    EXPECT_EQ(config->num_kda_layers(), 6);
    EXPECT_EQ(config->num_mla_layers(), 3);
    EXPECT_EQ(config->num_moe_layers(), 8);
}

TEST(ModelConfig, reads_the_quantized_modules_of_the_nvfp4_release) {
    const auto config = read_model_config(K3POD_SOURCE_DIR "/models/k3-tiny");
    ASSERT_TRUE(config) << config.status().to_string();
    const QuantizationConfig& q = config->quantization;
    EXPECT_EQ(q.method, QuantMethod::kModeloptMixed);
    ASSERT_EQ(q.modules.size(), 74u);
    EXPECT_EQ(q.modules.front().name, "language_model.model.layers.0.self_attn.b_proj");
    EXPECT_EQ(q.modules.front().format, WeightFormat::kFp8Tile);
    EXPECT_EQ(q.modules.back().name, "language_model.model.layers.8.block_sparse_moe.experts");
    EXPECT_EQ(q.modules.back().format, WeightFormat::kNvfp4);
    EXPECT_TRUE(q.ignore.empty());
}

TEST(ModelConfig, reads_the_compressed_tensors_section_inside_text_config) {
    json config = tiny_config();
    config.erase("quantization_config");
    config["text_config"]["quantization_config"] = json::parse(R"({
        "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "kv_cache_scheme": null,
        "config_groups": {"group_0": {"targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "group_size": 32, "symmetric": true}}},
        "ignore": ["re:.*self_attn.*", "lm_head"]})");
    const auto result = parse_model_config(config.dump());
    ASSERT_TRUE(result) << result.status().to_string();
    EXPECT_EQ(result->quantization.method, QuantMethod::kCompressedTensors);
    EXPECT_EQ(result->quantization.targets, std::vector<std::string>{"Linear"});
    EXPECT_EQ(result->quantization.ignore,
              (std::vector<std::string>{"re:.*self_attn.*", "lm_head"}));
}

struct Refusal {
    const char* pointer;
    json value;
    const char* message;
};

class UnsupportedValue : public testing::TestWithParam<Refusal> {};

TEST_P(UnsupportedValue, is_refused_by_field_name_and_value) {
    EXPECT_EQ(refusal_of(GetParam().pointer, GetParam().value),
              std::string("invalid_argument: ") + GetParam().message);
}

const Refusal kRefusals[] = {
    {"/model_type", "kimi_k2", R"(model_type: found "kimi_k2", expected "kimi_k3")"},
    {"/tie_word_embeddings", true, "tie_word_embeddings: found true, expected false"},
    {"/eos_token_id", json::array({1, 2}),
     "eos_token_id: found [1,2], expected an integer from 0 to 2303"},
    {"/pad_token_id", 2304, "pad_token_id: found 2304, expected an integer from 0 to 2303"},
    {"/text_config/bos_token_id", 7, "text_config.bos_token_id: found 7, expected 2048"},
    {"/text_config/model_type", "llama",
     R"(text_config.model_type: found "llama", expected "kimi_linear")"},
    {"/text_config/tie_word_embeddings", true,
     "text_config.tie_word_embeddings: found true, expected false"},
    {"/text_config/hidden_act", "silu", R"(text_config.hidden_act: found "silu", expected "situ")"},
    {"/text_config/hidden_act", 4, R"(text_config.hidden_act: found 4, expected "situ")"},
    {"/text_config/num_expert_group", 8, "text_config.num_expert_group: found 8, expected 1"},
    {"/text_config/topk_group", 4, "text_config.topk_group: found 4, expected 1"},
    {"/text_config/mla_use_nope", false, "text_config.mla_use_nope: found false, expected true"},
    {"/text_config/mla_use_output_gate", false,
     "text_config.mla_use_output_gate: found false, expected true"},
    {"/text_config/linear_attn_config/use_full_rank_gate", false,
     "text_config.linear_attn_config.use_full_rank_gate: found false, expected true"},
    {"/text_config/latent_moe_use_norm", false,
     "text_config.latent_moe_use_norm: found false, expected true"},
    {"/text_config/moe_renormalize", false,
     "text_config.moe_renormalize: found false, expected true"},
    {"/text_config/moe_router_activation_func", "softmax",
     R"(text_config.moe_router_activation_func: found "softmax", expected "sigmoid")"},
    {"/text_config/topk_method", "greedy",
     R"(text_config.topk_method: found "greedy", expected "noaux_tc")"},
    {"/text_config/num_nextn_predict_layers", 1,
     "text_config.num_nextn_predict_layers: found 1, expected 0"},
    {"/text_config/moe_layer_freq", 2, "text_config.moe_layer_freq: found 2, expected 1"},
    {"/text_config/num_key_value_heads", 1, "text_config.num_key_value_heads: found 1, expected 3"},
    {"/text_config/rope_scaling",
     {{"type", "yarn"}},
     R"(text_config.rope_scaling: found {"type":"yarn"}, expected null or no such field)"},
    {"/text_config/hidden_size", "256",
     R"(text_config.hidden_size: found "256", expected an integer from 32 to 262144, a multiple of 32)"},
    {"/text_config/hidden_size", 256.5,
     "text_config.hidden_size: found 256.5, expected an integer from 32 to 262144, a multiple of "
     "32"},
    {"/text_config/hidden_size", 0,
     "text_config.hidden_size: found 0, expected an integer from 32 to 262144, a multiple of 32"},
    {"/text_config/hidden_size", 99999999999999,
     "text_config.hidden_size: found 99999999999999, expected an integer from 32 to 262144, a "
     "multiple "
     "of 32"},
    {"/text_config/moe_intermediate_size", 100,
     "text_config.moe_intermediate_size: found 100, expected an integer from 32 to 262144, a "
     "multiple of "
     "32"},
    {"/text_config/qk_nope_head_dim", 120,
     "text_config.qk_nope_head_dim: found 120, expected an integer from 32 to 1024, a multiple of "
     "32"},
    {"/text_config/linear_attn_config/head_dim", 100,
     "text_config.linear_attn_config.head_dim: found 100, expected an integer from 32 to 1024, a "
     "multiple of 32"},
    {"/text_config/num_hidden_layers", -9,
     "text_config.num_hidden_layers: found -9, expected an integer from 1 to 4096"},
    {"/text_config/num_experts_per_token", 33,
     "text_config.num_experts_per_token: found 33, expected an integer from 1 to 32"},
    {"/text_config/num_experts", 65536,
     "text_config.num_experts: found 65536, expected an integer from 1 to 65535"},
    {"/text_config/rms_norm_eps", 0,
     "text_config.rms_norm_eps: found 0, expected a number from 1e-12 to 0.1"},
    {"/text_config/activation_situ_linear_beta", nullptr,
     "text_config.activation_situ_linear_beta: found null, expected a number from 0.001 to "
     "1000000"},
    {"/text_config/linear_attn_config/gate_lower_bound", -6.0,
     "text_config.linear_attn_config.gate_lower_bound: found -6.0, expected a number from -5 to "
     "-0.001"},
    {"/text_config/linear_attn_config", json::array(),
     "text_config.linear_attn_config: found [], expected an object"},
    {"/text_config/linear_attn_config/kda_layers/0", 0,
     "text_config.linear_attn_config.kda_layers[0]: found 0, expected an integer from 1 to 9"},
    {"/text_config/linear_attn_config/kda_layers/5", 10,
     "text_config.linear_attn_config.kda_layers[5]: found 10, expected an integer from 1 to 9"},
    {"/text_config/linear_attn_config/full_attn_layers",
     {4, 8},
     "text_config.linear_attn_config.full_attn_layers: found [4,8], expected every layer from 1 to "
     "9 "
     "once in full_attn_layers or kda_layers; layer 9 is there 0 times"},
    {"/text_config/linear_attn_config/full_attn_layers",
     {3, 4, 8, 9},
     "text_config.linear_attn_config.full_attn_layers: found [3,4,8,9], expected every layer from "
     "1 to "
     "9 once in full_attn_layers or kda_layers; layer 3 is there 2 times"},
    {"/quantization_config/quant_method", "awq",
     R"(quantization_config.quant_method: found "awq", expected "modelopt_mixed" or "compressed-tensors")"},
    {"/quantization_config/kv_cache_quant_algo", "FP8",
     R"(quantization_config.kv_cache_quant_algo: found "FP8", expected null or no such field)"},
    {"/quantization_config/quantized_layers/x/quant_algo", "W4A8",
     R"(quantization_config.quantized_layers.x.quant_algo: found "W4A8", expected "FP8_PB_WO" or "NVFP4")"},
    {"/text_config/quantization_config", json::object(),
     "text_config.quantization_config: found {}, expected null or no such field"},
};
INSTANTIATE_TEST_SUITE_P(ModelConfig, UnsupportedValue, testing::ValuesIn(kRefusals));

TEST(ModelConfig, refuses_missing_fields_by_name) {
    EXPECT_EQ(refusal_without("", "text_config"),
              "invalid_argument: text_config: found nothing, expected an object");
    EXPECT_EQ(refusal_without("/text_config", "hidden_act"),
              "invalid_argument: text_config.hidden_act: found nothing, expected \"situ\"");
    EXPECT_EQ(
        refusal_without("/text_config/linear_attn_config", "kda_layers"),
        "invalid_argument: text_config.linear_attn_config.kda_layers: found nothing, expected a "
        "list of integers");
}

TEST(ModelConfig, refuses_every_config_that_lacks_one_of_its_fields) {
    const json base = tiny_config();
    const std::vector<std::string> unread = {"architectures", "dtype", "use_grouped_topk"};
    for (const char* object : {"", "/text_config", "/text_config/linear_attn_config"}) {
        for (const auto& [key, value] : base[json::json_pointer(object)].items()) {
            if (std::count(unread.begin(), unread.end(), key) != 0) continue;
            const bool is_repeated = std::string(object) == "/text_config" &&
                                     (key.ends_with("_token_id") || key == "tie_word_embeddings");
            if (is_repeated || key == "quantization_config") continue;
            EXPECT_THAT(refusal_without(object, key.c_str()), HasSubstr(key));
        }
    }
}

TEST(ModelConfig, refuses_text_that_is_not_one_json_object) {
    EXPECT_THAT(parse_model_config("").status().message(), HasSubstr("not valid JSON"));
    EXPECT_THAT(parse_model_config("{\"text_config\": {").status().message(),
                HasSubstr("not valid JSON"));
    EXPECT_EQ(parse_model_config("[1]").status().message(),
              "the file: found [1], expected an object");
    EXPECT_THAT(parse_model_config(std::string(100000, '[')).status().message(),
                HasSubstr("not valid JSON"));
}

TEST(ModelConfig, refuses_a_field_that_is_there_twice) {
    std::string text = tiny_config().dump();
    text.insert(1, "\"model_type\": \"kimi_k3\", ");
    EXPECT_EQ(parse_model_config(text).status().message(),
              "model_type: found \"kimi_k3\", expected the field once, it is there twice");
}

TEST(ModelConfig, names_path_and_reason_when_the_file_cannot_be_read) {
    const auto result = read_model_config("/nonexistent/model");
    EXPECT_EQ(result.status().to_string(),
              "not_found: cannot read /nonexistent/model/config.json: No such file or directory");
}

TEST(ModelConfig, puts_the_path_in_front_of_a_refusal) {
    const auto dir = std::filesystem::path(testing::TempDir()) / "model_config_with_path";
    std::filesystem::create_directories(dir);
    std::ofstream(dir / "config.json") << "{}";
    EXPECT_EQ(read_model_config(dir).status().message(),
              (dir / "config.json").string() + ": text_config: found nothing, expected an object");
}

}  // namespace
}  // namespace k3pod

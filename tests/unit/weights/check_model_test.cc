#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "k3pod/weights/model_weights.h"
#include "tests/support/checkpoint_fixture.h"

namespace k3pod {
namespace {

using k3pod::testing::convert_to_mxfp4;
using k3pod::testing::EditableCheckpoint;
using k3pod::testing::EditableTensor;
using k3pod::testing::store_as_bf16;
using k3pod::testing::TempFolder;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kLayer3[] = "language_model.model.layers.3.";
constexpr char kExpert[] = "language_model.model.layers.3.block_sparse_moe.experts.17.";

// What check_model says of a copy of k3-tiny that `edit` has changed: the release or the refusal.
std::string verdict_on(const std::function<void(EditableCheckpoint&)>& edit) {
    static const EditableCheckpoint tiny(K3POD_SOURCE_DIR "/models/k3-tiny");
    EditableCheckpoint edited = tiny;
    edit(edited);
    const TempFolder folder;
    edited.save(folder.path());
    const auto config = read_model_config(folder.path());
    if (!config) return config.status().to_string();
    const auto checkpoint = Checkpoint::open(folder.path());
    if (!checkpoint) return checkpoint.status().to_string();
    const auto release = check_model(*checkpoint, *config);
    if (!release) return release.status().to_string();
    return *release == Release::kNvfp4 ? "nvfp4" : "mxfp4";
}

TEST(CheckModel, recognises_both_releases) {
    EXPECT_EQ(verdict_on([](EditableCheckpoint&) {}), "nvfp4");
    EXPECT_EQ(verdict_on(convert_to_mxfp4), "mxfp4");
}

TEST(CheckModel, skips_vision_tensors_and_refuses_any_other_surplus) {
    const EditableTensor extra{"", "BF16", {4}, std::string(8, '\0')};
    const auto with = [&](const std::string& name) {
        return verdict_on([&](EditableCheckpoint& c) {
            c.shards[0].tensors.push_back(extra);
            c.shards[0].tensors.back().name = name;
        });
    };
    EXPECT_EQ(with("vision_tower.patch_embed.proj.weight"), "nvfp4");
    EXPECT_EQ(with("mm_projector.proj.0.weight"), "nvfp4");
    EXPECT_THAT(with("language_model.model.layers.9.input_layernorm.weight"),
                AllOf(HasSubstr("data_loss: tensor language_model.model.layers.9.input_layernorm."
                                "weight in /"),
                      EndsWith("model-00001-of-000004.safetensors does not belong to the model of "
                               "config.json (9 layers, 32 experts): config and checkpoint are of "
                               "different models")));
}

TEST(CheckModel, a_missing_input_scale_is_refused_with_layer_expert_and_tensor) {
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) { c.drop(std::string(kExpert) + "w2.input_scale"); }),
        HasSubstr("data_loss: layer 3, expert 17: tensor language_model.model.layers.3."
                  "block_sparse_moe.experts.17.w2.input_scale is missing from /"));
}

class MissingTensor : public ::testing::TestWithParam<const char*> {};

TEST_P(MissingTensor, is_refused_by_name) {
    const std::string name = std::string("language_model.") + GetParam();
    EXPECT_THAT(verdict_on([&](EditableCheckpoint& c) { c.drop(name); }),
                HasSubstr("tensor " + name + " is missing from /"));
}

INSTANTIATE_TEST_SUITE_P(
    CheckModel, MissingTensor,
    ::testing::Values("lm_head.weight", "model.norm.weight", "model.output_attn_res_proj.weight",
                      "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.A_log",
                      "model.layers.2.self_attn.k_conv1d.weight",
                      "model.layers.5.mlp_res_norm.weight",
                      "model.layers.3.self_attn.kv_b_proj.weight_scale",
                      "model.layers.8.block_sparse_moe.gate.e_score_correction_bias",
                      "model.layers.8.block_sparse_moe.experts.31.w3.weight"));

TEST(CheckModel, wrong_shapes_are_refused_with_found_and_expected) {
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) {
            c.tensor(std::string(kLayer3) + "self_attn.o_proj.weight").shape = {384, 256};
        }),
        AllOf(HasSubstr("tensor language_model.model.layers.3.self_attn.o_proj.weight in /"),
              HasSubstr(" is F8_E4M3 [384, 256], expected F8_E4M3 [256, 384]")));
    EXPECT_THAT(verdict_on([](EditableCheckpoint& c) {
                    c.tensor(std::string(kLayer3) + "self_attn.o_proj.weight_scale").shape = {2, 3};
                }),
                HasSubstr(" is F32 [2, 3], expected F32 [2, 1, 3, 1]"));
    EXPECT_THAT(verdict_on([](EditableCheckpoint& c) {
                    c.tensor(std::string(kExpert) + "w1.weight_scale").shape = {64, 16};
                }),
                AllOf(HasSubstr("layer 3, expert 17: tensor "),
                      HasSubstr(" is F8_E4M3 [64, 16], expected F8_E4M3 [128, 8]")));
}

TEST(CheckModel, wrong_dtypes_are_refused_with_found_and_expected) {
    EXPECT_THAT(verdict_on([](EditableCheckpoint& c) {
                    c.tensor("language_model.model.embed_tokens.weight").dtype = "F16";
                }),
                HasSubstr(" is F16 [2304, 256], expected BF16 [2304, 256]"));
    EXPECT_THAT(verdict_on([](EditableCheckpoint& c) {
                    c.tensor("language_model.model.embed_tokens.weight").dtype = "I16";
                }),
                HasSubstr(" is I16 [2304, 256], expected BF16 [2304, 256]"));
    EXPECT_THAT(verdict_on([](EditableCheckpoint& c) {
                    c.tensor(std::string(kExpert) + "w1.weight_scale").dtype = "U8";
                }),
                HasSubstr(" is U8 [128, 8], expected F8_E4M3 [128, 8]"));
}

TEST(CheckModel, a_log_may_be_padded_but_not_short) {
    const auto with_values = [](int64_t count) {
        return verdict_on([&](EditableCheckpoint& c) {
            EditableTensor& a_log = c.tensor("language_model.model.layers.0.self_attn.A_log");
            a_log.shape = {count};
            a_log.bytes.assign(static_cast<size_t>(count) * 4, '\0');
        });
    };
    EXPECT_EQ(with_values(3), "nvfp4");
    EXPECT_EQ(with_values(128), "nvfp4");
    EXPECT_THAT(with_values(2), HasSubstr(" is F32 [2], expected F32 [3 or more]"));
}

TEST(CheckModel, an_expert_in_the_format_of_the_other_release_is_refused) {
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) {
            EditableCheckpoint other = c;
            convert_to_mxfp4(other);
            c.tensor(std::string(kExpert) + "w1.weight") =
                other.tensor(std::string(kExpert) + "w1.weight_packed");
        }),
        HasSubstr("layer 3, expert 17: tensor language_model.model.layers.3.block_sparse_moe."
                  "experts.17.w1.weight_packed is stored as mxfp4, expected nvfp4 as in the "
                  "experts before it: mixed formats are not supported"));
}

TEST(CheckModel, experts_in_an_unknown_format_are_refused) {
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) {
            c.drop("language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight");
        }),
        HasSubstr("expert weight language_model.model.layers.1.block_sparse_moe.experts.0.w1."
                  "weight is missing, expected NVFP4 (weight U8) or MXFP4 (weight_packed U8)"));
}

TEST(CheckModel, a_config_of_the_other_release_is_refused) {
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) {
            EditableCheckpoint other = c;
            convert_to_mxfp4(other);
            c.config = other.config;
        }),
        HasSubstr(" is stored as fp8_tile, but quantization_config in config.json says bf16"));
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) { c.config.erase("quantization_config"); }),
        HasSubstr(" is stored as fp8_tile, but quantization_config in config.json says bf16"));
}

TEST(CheckModel, an_expert_layer_missing_from_the_config_is_refused) {
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) {
            c.config["quantization_config"]["quantized_layers"].erase(
                "language_model.model.layers.8.block_sparse_moe.experts");
        }),
        HasSubstr(
            "layer 8, expert 0: tensor language_model.model.layers.8.block_sparse_moe.experts.0."
            "w1.weight in "));
}

// k3-tiny with layer 3's attention in BF16 and an exclusion list.
std::string verdict_on_layer_3_as_bf16(const json& ignore) {
    return verdict_on([&](EditableCheckpoint& c) {
        for (const char* proj :
             {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "g_proj", "o_proj"}) {
            store_as_bf16(c, fmt::format("{}self_attn.{}", kLayer3, proj));
        }
        c.config["quantization_config"]["ignore"] = ignore;
    });
}

TEST(CheckModel, a_layer_kept_in_bf16_may_be_named_in_any_spelling) {
    for (const char* entry :
         {"layers.3.self_attn", "model.layers.3.self_attn",
          "language_model.model.layers.3.self_attn", "model.language_model.layers.3.self_attn",
          "*layers.3.self_attn*", "model.layers.3.self_attn.*", "re:.*layers\\.3\\.self_attn.*",
          "re:^model\\.layers\\.3\\.self_attn"}) {
        EXPECT_EQ(verdict_on_layer_3_as_bf16({"lm_head", entry}), "nvfp4") << entry;
    }
}

TEST(CheckModel, a_layer_kept_in_bf16_but_not_named_is_refused) {
    for (const json& ignore : {json::array(), json{"layers.30.self_attn"}, json{"layers.3.self"},
                               json{"re:layers\\.3\\.self_attn\\.q_a_proj$"}}) {
        EXPECT_THAT(
            verdict_on_layer_3_as_bf16(ignore),
            HasSubstr("is stored as bf16, but quantization_config in config.json says fp8_tile: "
                      "correct its module lists or use the config that belongs to these files"))
            << ignore;
    }
}

TEST(CheckModel, an_excluded_module_that_is_quantised_is_refused) {
    EXPECT_THAT(verdict_on([](EditableCheckpoint& c) {
                    c.config["quantization_config"]["ignore"] = {"layers.5.self_attn.k_proj"};
                }),
                HasSubstr("tensor language_model.model.layers.5.self_attn.k_proj.weight in "));
}

TEST(CheckModel, the_mxfp4_release_needs_its_exclusion_list) {
    const auto verdict = [](const json& ignore) {
        return verdict_on([&](EditableCheckpoint& c) {
            convert_to_mxfp4(c);
            c.config["text_config"]["quantization_config"]["ignore"] = ignore;
        });
    };
    EXPECT_EQ(verdict({"self_attn", "shared_experts", "mlp", "lm_head"}), "mxfp4");
    EXPECT_EQ(
        verdict({"*self_attn*", "*.shared_experts.*", "re:.*mlp\\.(gate|up|down)_proj", "lm_head"}),
        "mxfp4");
    EXPECT_THAT(verdict({"self_attn", "mlp", "lm_head"}),
                HasSubstr("block_sparse_moe.shared_experts.gate_proj.weight in "));
    EXPECT_THAT(
        verdict({"self_attn", "mlp", "lm_head", "shared_experts", "re:.*experts\\.17\\..*"}),
        HasSubstr("is stored as mxfp4, but quantization_config in config.json says bf16"));
}

TEST(CheckModel, an_exclusion_that_is_no_regular_expression_is_refused) {
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) {
            c.config["quantization_config"]["ignore"] = {"re:(unclosed"};
        }),
        HasSubstr("config.json: quantization_config: entry \"re:(unclosed\" is not a regular "
                  "expression: missing closing parenthesis at 9"));
}

TEST(CheckModel, an_exclusion_that_would_take_for_ever_to_match_is_refused) {
    EXPECT_THAT(
        verdict_on([](EditableCheckpoint& c) {
            c.config["quantization_config"]["ignore"] = {"re:((a|.)*)*$(?!)"};
        }),
        HasSubstr("entry \"re:((a|.)*)*$(?!)\" takes too long to match \"layers.0.self_attn."));
}

TEST(CheckModel, one_module_listed_in_two_formats_is_refused) {
    EXPECT_THAT(verdict_on([](EditableCheckpoint& c) {
                    c.config["quantization_config"]["quantized_layers"]
                            ["model.layers.0.self_attn.b_proj"] = {{"quant_algo", "NVFP4"}};
                }),
                HasSubstr("is listed as "));
}

}  // namespace
}  // namespace k3pod

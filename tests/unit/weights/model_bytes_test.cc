#include "k3pod/weights/model_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace k3pod {
namespace {

using nlohmann::json;

std::string file_text(const std::string& path) {
    std::ifstream file(K3POD_SOURCE_DIR + path);
    EXPECT_TRUE(file) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

ModelBytes count(const std::string& text) {
    const auto bytes = count_model_bytes(text);
    EXPECT_TRUE(bytes) << bytes.status().to_string();
    return bytes ? *bytes : ModelBytes{};
}

TEST(ModelBytes, kimi_k3_as_nvfp4_has_the_published_totals) {
    const ModelBytes bytes = count(file_text("/configs/Kimi-K3-NVFP4.config.json"));
    EXPECT_EQ(bytes.release, Release::kNvfp4);
    EXPECT_EQ(bytes.num_experts, 82'432);
    EXPECT_EQ(bytes.expert_bytes, 18'579'480);
    EXPECT_EQ(bytes.vision_bytes, 2 * (401'214'464 + 46'144'512));
    EXPECT_NEAR(static_cast<double>(bytes.other_bytes()) / (1 << 30), 72.86, 0.005);
    EXPECT_NEAR(static_cast<double>(bytes.text_bytes) / (1 << 30), 72.03, 0.005);
}

TEST(ModelBytes, kimi_k3_as_mxfp4_has_the_published_total_to_the_byte) {
    json config = json::parse(file_text("/configs/Kimi-K3-NVFP4.config.json"));
    config.erase("quantization_config");
    config["text_config"]["quantization_config"] = json::parse(R"({
        "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*",
                   "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "lm_head"]})");
    const ModelBytes bytes = count(config.dump());
    EXPECT_EQ(bytes.release, Release::kMxfp4);
    EXPECT_EQ(bytes.expert_bytes, 17'547'264);
    EXPECT_EQ(bytes.total_bytes(), 1'560'860'324'864);
}

TEST(ModelBytes, headers_and_config_agree_on_the_tiny_model) {
    const std::string dir = std::string(K3POD_SOURCE_DIR) + "/models/k3-tiny";
    const auto config = read_model_config(dir);
    ASSERT_TRUE(config) << config.status().to_string();
    const auto checkpoint = Checkpoint::open(dir);
    ASSERT_TRUE(checkpoint) << checkpoint.status().to_string();
    const ModelBytes from_headers = count_model_bytes(*checkpoint, *config, Release::kNvfp4);
    EXPECT_EQ(from_headers, count(file_text("/models/k3-tiny/config.json")));
    EXPECT_EQ(from_headers.num_experts, 256);
    EXPECT_EQ(from_headers.expert_bytes, 27'672);  // 3 x 128 x 128 x 9/16 + six scalars
    EXPECT_EQ(from_headers.total_bytes(), checkpoint->total_bytes());
}

TEST(ModelBytes, experts_that_are_not_quantised_are_refused) {
    json config = json::parse(file_text("/configs/Kimi-K3-NVFP4.config.json"));
    config.erase("quantization_config");
    const auto bytes = count_model_bytes(config.dump());
    ASSERT_FALSE(bytes);
    EXPECT_THAT(bytes.status().message(), testing::HasSubstr("expected NVFP4 or MXFP4"));
}

TEST(ModelBytes, a_vision_field_that_is_missing_is_named) {
    json config = json::parse(file_text("/configs/Kimi-K3-NVFP4.config.json"));
    config["vision_config"].erase("vt_head_dim");
    const auto bytes = count_model_bytes(config.dump());
    ASSERT_FALSE(bytes);
    EXPECT_THAT(bytes.status().message(), testing::HasSubstr("vision_config.vt_head_dim"));
}

}  // namespace
}  // namespace k3pod

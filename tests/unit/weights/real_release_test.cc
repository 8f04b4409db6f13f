// The NVFP4 release by its published names, dtypes and shapes: 992,508 tensors of 1.5 TB, here in
// files without content. The engine's own table must accept exactly these, and in seconds.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "k3pod/weights/model_bytes.h"
#include "k3pod/weights/model_weights.h"
#include "tests/support/checkpoint_fixture.h"

namespace k3pod {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using WeightMap = std::vector<std::pair<std::string, std::string>>;

// It takes under two seconds on one idle core; the bounds leave room for a busy one.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kMaxSeconds = 15;
#else
constexpr double kMaxSeconds = 150;
#endif

constexpr int kNumLayers = 93;
constexpr int kNumExperts = 896;

bool is_mla(int layer) {
    return layer % 4 == 3 || layer == 92;
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

class ShardWriter {
  public:
    void f32(const std::string& name, std::vector<int64_t> shape) { add(name, "F32", shape, 4); }
    void bf16(const std::string& name, std::vector<int64_t> shape) { add(name, "BF16", shape, 2); }
    void u8(const std::string& name, std::vector<int64_t> shape) { add(name, "U8", shape, 1); }
    void e4m3(const std::string& name, std::vector<int64_t> shape) {
        add(name, "F8_E4M3", shape, 1);
    }
    // An attention projection; tiles as listed for the release.
    void fp8(const std::string& module, int64_t rows, int64_t cols, int64_t row_tiles,
             int64_t col_tiles) {
        e4m3(module + ".weight", {rows, cols});
        f32(module + ".weight_scale", {row_tiles, 1, col_tiles, 1});
    }

    void write(const std::filesystem::path& dir, const std::string& file, WeightMap& weight_map) {
        k3pod::testing::write_shard(dir / file, fmt::to_string(header_) + "}", end_);
        for (std::string& name : names_) weight_map.emplace_back(std::move(name), file);
    }

  private:
    void add(const std::string& name, const char* dtype, const std::vector<int64_t>& shape,
             int64_t bytes) {
        for (const int64_t extent : shape) bytes *= extent;
        fmt::format_to(std::back_inserter(header_),
                       R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                       names_.empty() ? "{" : ",", name, dtype, fmt::join(shape, ","), end_,
                       end_ + bytes);
        end_ += bytes;
        names_.push_back(name);
    }

    fmt::memory_buffer header_;
    std::vector<std::string> names_;
    int64_t end_ = 0;
};

void add_kda(ShardWriter& shard, const std::string& attn) {
    for (const char* proj : {"q_proj", "k_proj", "v_proj", "g_proj"}) {
        shard.fp8(attn + proj, 12288, 7168, 96, 56);
    }
    shard.fp8(attn + "o_proj", 7168, 12288, 56, 96);
    shard.fp8(attn + "f_a_proj", 128, 7168, 1, 56);
    shard.fp8(attn + "f_b_proj", 12288, 128, 96, 1);
    shard.fp8(attn + "b_proj", 96, 7168, 1, 56);
    for (const char* conv : {"q_conv1d", "k_conv1d", "v_conv1d"}) {
        shard.f32(attn + conv + ".weight", {12288, 1, 4});
    }
    shard.f32(attn + "A_log", {128});
    shard.f32(attn + "dt_bias", {12288});
    shard.f32(attn + "o_norm.weight", {128});
}

void add_mla(ShardWriter& shard, const std::string& attn) {
    shard.fp8(attn + "q_a_proj", 1536, 7168, 12, 56);
    shard.fp8(attn + "q_b_proj", 18432, 1536, 144, 12);
    shard.fp8(attn + "kv_a_proj_with_mqa", 576, 7168, 5, 56);
    shard.fp8(attn + "kv_b_proj", 24576, 512, 192, 4);
    shard.fp8(attn + "g_proj", 12288, 7168, 96, 56);
    shard.fp8(attn + "o_proj", 7168, 12288, 56, 96);
    shard.bf16(attn + "q_a_layernorm.weight", {1536});
    shard.bf16(attn + "kv_a_layernorm.weight", {512});
}

void add_experts(ShardWriter& shard, const std::string& experts) {
    for (int expert = 0; expert < kNumExperts; ++expert) {
        for (const char* w : {"w1", "w2", "w3"}) {
            const std::string module = fmt::format("{}{}.{}", experts, expert, w);
            const bool is_down = w[1] == '2';
            const int64_t rows = is_down ? 3584 : 3072;
            shard.u8(module + ".weight", {rows, is_down ? 1536 : 1792});
            shard.e4m3(module + ".weight_scale", {rows, is_down ? 192 : 224});
            shard.f32(module + ".weight_scale_2", {});
            shard.f32(module + ".input_scale", {});
        }
    }
}

void add_moe(ShardWriter& shard, const std::string& moe) {
    shard.bf16(moe + "gate.weight", {896, 7168});
    shard.f32(moe + "gate.e_score_correction_bias", {896});
    shard.bf16(moe + "routed_expert_down_proj.weight", {3584, 7168});
    shard.bf16(moe + "routed_expert_up_proj.weight", {7168, 3584});
    shard.bf16(moe + "routed_expert_norm.weight", {3584});
    shard.bf16(moe + "shared_experts.gate_proj.weight", {6144, 7168});
    shard.bf16(moe + "shared_experts.up_proj.weight", {6144, 7168});
    shard.bf16(moe + "shared_experts.down_proj.weight", {7168, 6144});
    add_experts(shard, moe + "experts.");
}

void write_layer(const std::filesystem::path& dir, int layer, WeightMap& weight_map) {
    ShardWriter shard;
    const std::string prefix = fmt::format("language_model.model.layers.{}.", layer);
    for (const char* norm : {"input_layernorm", "post_attention_layernorm",
                             "self_attention_res_norm", "mlp_res_norm"}) {
        shard.bf16(prefix + norm + ".weight", {7168});
    }
    shard.bf16(prefix + "self_attention_res_proj.weight", {1, 7168});
    shard.bf16(prefix + "mlp_res_proj.weight", {1, 7168});
    if (is_mla(layer)) {
        add_mla(shard, prefix + "self_attn.");
    } else {
        add_kda(shard, prefix + "self_attn.");
    }
    if (layer == 0) {
        shard.bf16(prefix + "mlp.gate_proj.weight", {33792, 7168});
        shard.bf16(prefix + "mlp.up_proj.weight", {33792, 7168});
        shard.bf16(prefix + "mlp.down_proj.weight", {7168, 33792});
    } else {
        add_moe(shard, prefix + "block_sparse_moe.");
    }
    shard.write(dir, fmt::format("model-{:05}-of-00096.safetensors", layer + 1), weight_map);
}

void write_ends(const std::filesystem::path& dir, WeightMap& weight_map) {
    ShardWriter shard;
    shard.bf16("language_model.model.embed_tokens.weight", {163840, 7168});
    shard.bf16("language_model.lm_head.weight", {163840, 7168});
    shard.bf16("language_model.model.norm.weight", {7168});
    shard.bf16("language_model.model.output_attn_res_norm.weight", {7168});
    shard.bf16("language_model.model.output_attn_res_proj.weight", {1, 7168});
    shard.write(dir, "model-00094-of-00096.safetensors", weight_map);
    ShardWriter vision;  // 168 tensors that a text engine skips; their names are not the release's.
    vision.bf16("mm_projector.0.weight", {4096, 4096});
    vision.bf16("mm_projector.1.weight", {7168, 4096});
    vision.bf16("mm_projector.2.weight", {7168});
    vision.bf16("vision_tower.patches.weight", {1024, 3, 14, 14});
    vision.bf16("vision_tower.positions.weight", {64, 64, 1024});
    vision.bf16("vision_tower.norm.weight", {1024});
    for (int block = 0; block < 27; ++block) {
        const std::string prefix = fmt::format("vision_tower.{}.", block);
        vision.bf16(prefix + "norm0.weight", {1024});
        vision.bf16(prefix + "norm1.weight", {1024});
        vision.bf16(prefix + "wqkv.weight", {4608, 1024});
        vision.bf16(prefix + "wo.weight", {1024, 1536});
        vision.bf16(prefix + "up.weight", {4096, 1024});
        vision.bf16(prefix + "down.weight", {1024, 4096});
    }
    vision.write(dir, "model-00095-of-00096.safetensors", weight_map);
}

// k3-tiny's config with the sizes of the release.
json release_config() {
    std::ifstream file(K3POD_SOURCE_DIR "/models/k3-tiny/config.json");
    json config = json::parse(file);
    json& text = config["text_config"];
    text.update(json::parse(R"({
        "num_hidden_layers": 93, "hidden_size": 7168, "vocab_size": 163840,
        "num_attention_heads": 96, "num_key_value_heads": 96, "q_lora_rank": 1536,
        "intermediate_size": 33792, "moe_intermediate_size": 3072, "num_experts": 896,
        "num_experts_per_token": 16, "routed_expert_hidden_size": 3584, "attn_res_block_size": 12,
        "max_position_embeddings": 1048576})"));
    json& linear = text["linear_attn_config"];
    linear["num_heads"] = 96;
    linear["kda_layers"] = linear["full_attn_layers"] = json::array();
    json& modules = config["quantization_config"]["quantized_layers"] = json::object();
    for (int layer = 0; layer < kNumLayers; ++layer) {
        linear[is_mla(layer) ? "full_attn_layers" : "kda_layers"].push_back(layer + 1);
        const std::string prefix = fmt::format("language_model.model.layers.{}.", layer);
        modules[prefix + "self_attn"] = {{"quant_algo", "FP8_PB_WO"}};
        modules[prefix + "block_sparse_moe.experts"] = {{"quant_algo", "NVFP4"},
                                                        {"group_size", 16}};
    }
    return config;
}

// What `k3pod plan` has where the checkpoint is not.
std::string planning_config() {
    std::ifstream file(K3POD_SOURCE_DIR "/configs/Kimi-K3-NVFP4.config.json");
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RealRelease, a_million_tensors_are_opened_and_checked_in_seconds) {
    const k3pod::testing::TempFolder folder;
    WeightMap weight_map;
    for (int layer = 0; layer < kNumLayers; ++layer) {
        write_layer(folder.path(), layer, weight_map);
    }
    write_ends(folder.path(), weight_map);
    k3pod::testing::write_index(folder.path(), weight_map);
    const auto config = parse_model_config(release_config().dump());
    ASSERT_TRUE(config) << config.status().to_string();

    const auto start = Clock::now();
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint) << checkpoint.status().to_string();
    const double open_seconds = seconds_since(start);
    const auto release = check_model(*checkpoint, *config);
    ASSERT_TRUE(release) << release.status().to_string();
    const double check_seconds = seconds_since(start) - open_seconds;
    fmt::print("{} tensors: opened in {:.2f} s, checked in {:.2f} s\n", checkpoint->num_tensors(),
               open_seconds, check_seconds);

    EXPECT_EQ(*release, Release::kNvfp4);
    EXPECT_EQ(checkpoint->num_tensors(), 992'508);
    EXPECT_LT(open_seconds + check_seconds, kMaxSeconds);

    const auto from_config = count_model_bytes(planning_config());
    ASSERT_TRUE(from_config) << from_config.status().to_string();
    const ModelBytes from_headers = count_model_bytes(*checkpoint, *config, *release);
    EXPECT_EQ(from_headers, *from_config);
    EXPECT_EQ(from_headers.total_bytes(), checkpoint->total_bytes());
}

TEST(RealRelease, an_expert_takes_the_published_bytes) {
    const auto config = parse_model_config(release_config().dump());
    ASSERT_TRUE(config) << config.status().to_string();
    EXPECT_EQ(expert_shard_bytes(*config, Release::kMxfp4, 3072), 17'547'264);
    // 18,579,480 in the file, which counts six scalars of 4 bytes.
    EXPECT_EQ(expert_shard_bytes(*config, Release::kNvfp4, 3072), 18'579'456);
    EXPECT_EQ(expert_shard_bytes(*config, Release::kMxfp4, 384), 17'547'264 / 8);
}

}  // namespace
}  // namespace k3pod

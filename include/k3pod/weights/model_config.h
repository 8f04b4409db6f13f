#pragma once
// The text model's shape, read from config.json. Anything this engine does not implement is refused
// by field name and value; nothing is silently replaced by a default.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/device/matrix.h"

namespace k3pod {

enum class AttentionKind : uint8_t { kKda, kMla };

enum class QuantMethod : uint8_t { kNone, kModeloptMixed, kCompressedTensors };

// What config.json says about the formats of weights. The tensors found decide; check_model()
// refuses a checkpoint whose tensors and config disagree.
struct QuantizationConfig {
    struct Module {
        std::string
            name;  // "language_model.model.layers.3.self_attn.q_proj", or a parent of modules
        WeightFormat format;  // kFp8Tile or kNvfp4
    };
    QuantMethod method = QuantMethod::kNone;
    std::vector<Module> modules;       // kModeloptMixed: the quantised modules
    std::vector<std::string> targets;  // kCompressedTensors: the MXFP4 modules, "Linear" for all
    // Modules that stay BF16 whatever the lists above say. A pattern is a module's name or a run of
    // its dotted parts, with or without the model prefix, a wildcard ("*") or a regex ("re:...").
    std::vector<std::string> ignore;
};

struct ModelConfig {
    int32_t num_layers = 0;
    int32_t hidden = 0;     // H
    int32_t vocab = 0;      // V
    int32_t num_heads = 0;  // MLA heads
    int32_t q_lora_rank = 0;
    int32_t kv_lora_rank = 0;      // 512: latent part of the MLA cache
    int32_t qk_nope_head_dim = 0;  // 128
    int32_t qk_rope_head_dim = 0;  // 64: never rotated (NoPE), shared key part of the MLA cache
    int32_t v_head_dim = 0;        // 128
    int32_t kda_num_heads = 0;
    int32_t kda_head_dim = 0;              // 128
    int32_t conv_kernel = 0;               // 4
    float gate_lower_bound = 0;            // -5
    std::vector<AttentionKind> attention;  // one per layer, 0-based
    int32_t first_dense_layers =
        0;                         // layers [0, first_dense_layers) have a dense MLP, the rest MoE
    int32_t intermediate = 0;      // width of the dense MLP
    int32_t moe_intermediate = 0;  // width of one routed expert
    int32_t num_experts = 0;       // E
    int32_t top_k = 0;             // K
    int32_t num_shared_experts = 0;  // one fused MLP of width num_shared_experts * moe_intermediate
    int32_t latent = 0;              // L
    float routed_scaling_factor = 1;
    float situ_beta = 0;         // 4
    float situ_linear_beta = 0;  // 25
    int32_t attn_res_block = 0;  // AttnRes blocks start at multiples of this
    float rms_norm_eps = 0;      // 1e-5; the two MLA low-rank norms use kMlaLowRankNormEps
    int32_t max_position_embeddings = 0;
    int32_t bos_id = 0, eos_id = 0, pad_id = 0, media_id = 0;
    QuantizationConfig quantization;

    int32_t kda_width() const { return kda_num_heads * kda_head_dim; }           // P
    int32_t mla_cache_width() const { return kv_lora_rank + qk_rope_head_dim; }  // 576
    int32_t shared_width() const { return num_shared_experts * moe_intermediate; }
    bool is_moe_layer(int32_t layer) const { return layer >= first_dense_layers; }
    int32_t num_kda_layers() const;
    int32_t num_mla_layers() const;
    int32_t num_moe_layers() const { return num_layers - first_dense_layers; }
};

inline constexpr float kMlaLowRankNormEps =
    1e-6f;  // facts: the reference's class default, not rms_norm_eps
inline constexpr float kKdaL2NormEps = 1e-6f;  // inside the root, on the SUM of squares

// kInvalidArgument names field, value and what is supported. `text` is the whole config.json.
Result<ModelConfig> parse_model_config(std::string_view text);
// Reads DIR/config.json. kNotFound with path and errno text when it cannot be read.
Result<ModelConfig> read_model_config(const std::filesystem::path& dir);

}  // namespace k3pod

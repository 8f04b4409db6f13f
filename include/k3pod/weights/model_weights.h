#pragma once
// Loading K3's tensors out of a Checkpoint: the station's non-expert weights, and single expert
// shards. Names and layouts are those of the NVFP4 release (FP8 tile attention, NVFP4 experts) and
// of the original MXFP4 release (BF16 attention, compressed-tensors experts). Vision tensors are
// skipped.

#include <span>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/device/matrix.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/load_progress.h"
#include "k3pod/weights/model_config.h"

namespace k3pod {

enum class Release : uint8_t { kNvfp4, kMxfp4 };

// Which release the tensors are; mixed formats, missing or surplus tensors, wrong dtypes and shapes
// are refused with tensor, found and expected, and so is a quantization_config that disagrees.
// Checks EVERY tensor that any node of the pod will need, so that a broken checkpoint stops the
// start on each node alike. No tensor data is read.
Result<Release> check_model(const Checkpoint& checkpoint, const ModelConfig& config);

using Vector = std::vector<float>;  // Norms, biases, conv and gate parameters, widened to fp32.

struct KdaWeights {
    Matrix q_proj, k_proj, v_proj, g_proj;  // [P, H]
    Matrix o_proj;                          // [H, P]
    Matrix f_a_proj, f_b_proj;              // [128, H], [P, 128]
    Matrix b_proj;                          // [heads, H]
    Vector q_conv, k_conv, v_conv;          // [P, conv_kernel]
    Vector a_log;                           // [heads] (padding of the file dropped)
    Vector dt_bias;                         // [P]
    Vector o_norm;                          // [head_dim]
};

struct MlaWeights {
    Matrix q_a_proj, q_b_proj;    // [q_lora, H], [heads*(nope+rope), q_lora]
    Matrix kv_a_proj, kv_b_proj;  // [512+64, H], [heads*(nope+v), 512]
    Matrix g_proj, o_proj;        // [heads*v, H], [H, heads*v]
    Vector q_a_norm, kv_a_norm;
};

struct MlpWeights {  // dense MLP or shared experts
    Matrix gate_proj, up_proj, down_proj;
};

struct MoeWeights {
    Matrix router;                  // [E, H]
    Vector router_bias;             // [E], selection only
    Matrix latent_down, latent_up;  // [L, H], [H, L]
    Vector routed_norm;             // [L]
    MlpWeights shared;
};

struct LayerWeights {
    Vector input_norm, post_attention_norm;  // [H]
    // AttnRes pseudo-queries: norm weight times projection, element-wise, fp32, [H].
    Vector attention_mixer, mlp_mixer;
    KdaWeights kda;    // filled when the layer's attention is KDA
    MlaWeights mla;    // filled when it is MLA
    MlpWeights dense;  // filled below first_dense_layers
    MoeWeights moe;    // filled from there on
};

struct StationWeights {
    Matrix embed, lm_head;  // [V, H]
    Vector final_norm;      // [H]
    Vector output_mixer;    // [H]
    std::vector<LayerWeights> layers;
    int64_t size_bytes = 0;  // what was read from the checkpoint
};

// Reads every non-expert text tensor, in file order. Values that are not finite (a NaN scale) are
// refused with the tensor's name.
Result<StationWeights> load_station_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                            const LoadProgress& progress);

// Rows [begin, end) of w1 and w3 and the same columns of w2 of one expert, repacked dense. NVFP4 is
// turned into MXFP4 where that changes no value (nearly everywhere: the release is a cast of
// MXFP4); the three matrices always have one format.
struct ExpertShardWeights {
    Matrix w1, w3;  // [end-begin, L]
    Matrix w2;      // [L, end-begin]
    WeightFormat format() const { return w1.view().format; }
    int64_t size_bytes() const { return w1.size_bytes() + w3.size_bytes() + w2.size_bytes(); }
};

// begin and end are multiples of 32 within [0, moe_intermediate]. Scale bytes that decode to NaN
// are refused with the tensor's name. Any thread.
Result<ExpertShardWeights> load_expert_shard(const Checkpoint& checkpoint,
                                             const ModelConfig& config, Release release,
                                             int32_t layer, int32_t expert, int32_t begin,
                                             int32_t end);

// Columns [begin, end) of an expert's width.
struct ColumnRange {
    int32_t begin = 0, end = 0;
};

// Several shards of one expert, in the order of `slices`, with the bits of load_expert_shard(): the
// expert's columns from the first to the last are read once and cut.
Result<std::vector<ExpertShardWeights>> load_expert_slices(const Checkpoint& checkpoint,
                                                           const ModelConfig& config,
                                                           Release release, int32_t layer,
                                                           int32_t expert,
                                                           std::span<const ColumnRange> slices);

// The most bytes that a shard of `width` columns takes in the store, without reading it: those of
// the format in the files. An NVFP4 shard that turned into MXFP4 takes 17/18 of it.
int64_t expert_shard_bytes(const ModelConfig& config, Release release, int32_t width);

}  // namespace k3pod

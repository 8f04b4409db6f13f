#pragma once
// Gated multi-head latent attention without positions, in the absorbed form: keys and values stay
// in the latent cache, queries and outputs go through kv_b instead. docs/model.md, "MLA".

#include <cstdint>
#include <span>
#include <vector>

#include "k3pod/ops/mla.h"
#include "k3pod/state/state_store.h"
#include "k3pod/weights/model_weights.h"
#include "model/row_buffer.h"
#include "model/step_rows.h"

namespace k3pod {

class MlaAttention {
  public:
    // Borrows state.
    MlaAttention(const ModelConfig& config, StateStore& state, int32_t max_rows);

    // y[T, H] = MLA(x[T, H]); writes the rows of every chunk into its pages of this layer.
    // mla_layer counts MLA layers only.
    void forward(const MlaWeights& weights, int32_t mla_layer, const StepRows& rows,
                 std::span<const float> x, std::span<float> y);

  private:
    void project(const MlaWeights& weights, int32_t tokens, std::span<const float> x);
    void attend(const MlaWeights& weights, int32_t mla_layer, const ChunkRows& chunk);
    void collect_pages(int32_t mla_layer, const SequenceState& state, int32_t tokens);

    ops::MlaShape shape_;
    float scale_;
    StateStore& state_;
    RowBuffer low_rank_q_;  // [T, q_lora]
    RowBuffer q_;           // [T, heads, nope + rope]
    RowBuffer kv_;          // [T, rank + rope]
    RowBuffer latent_q_;    // [T, heads, rank + rope]
    RowBuffer latent_out_;  // [T, heads, rank]
    RowBuffer o_, gate_;    // [T, heads, value]
    // Pages of the sequence in work; reserved for the whole pool.
    std::vector<std::span<Bf16>> pages_;
    std::vector<std::span<const Bf16>> read_pages_;
};

}  // namespace k3pod

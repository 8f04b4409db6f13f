#pragma once
// Kimi Delta Attention: linear attention over a short convolution, with a decay per key channel and
// one recurrent state per head. docs/model.md, "KDA".

#include <cstdint>
#include <span>

#include "k3pod/state/state_store.h"
#include "k3pod/weights/model_weights.h"
#include "model/row_buffer.h"
#include "model/step_rows.h"

namespace k3pod {

class KdaAttention {
  public:
    // Borrows state.
    KdaAttention(const ModelConfig& config, StateStore& state, int32_t max_rows);

    // y[T, H] = KDA(x[T, H]); advances the state of every chunk in this layer. kda_layer counts KDA
    // layers only.
    void forward(const KdaWeights& weights, int32_t kda_layer, const StepRows& rows,
                 std::span<const float> x, std::span<float> y);

  private:
    void project(const KdaWeights& weights, int32_t tokens, std::span<const float> x);
    void convolve(const KdaWeights& weights, int32_t kda_layer, const ChunkRows& chunk);
    void recur(int32_t kda_layer, const ChunkRows& chunk);
    void recur_rows(RowRange rows, std::span<float> state);

    int32_t heads_;
    int32_t head_dim_;
    int32_t width_;  // P
    float gate_lower_bound_;
    float eps_;
    StateStore& state_;
    RowBuffer q_, k_, v_;         // [T, P]; v becomes the output of the recurrence
    RowBuffer bottleneck_;        // [T, D]
    RowBuffer log_decay_, gate_;  // [T, P]
    RowBuffer beta_;              // [T, heads]
};

}  // namespace k3pod

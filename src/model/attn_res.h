#pragma once
// Attention Residuals: what a sublayer reads is a softmax mixture over depth; what it writes is
// added to an accumulator that starts anew at every block of layers. docs/model.md, "AttnRes".

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "k3pod/ops/attn_res.h"
#include "k3pod/weights/model_config.h"
#include "model/row_buffer.h"

namespace k3pod {

class AttnResStream {
  public:
    AttnResStream(const ModelConfig& config, int32_t max_rows);

    // Accumulators that a model of this shape freezes.
    static int32_t num_blocks(const ModelConfig& config);

    // Starts a step without frozen blocks. Returns the accumulator, [T, H], for the embeddings.
    std::span<float> begin(int32_t tokens);

    // out[count, H] = RMSNorm(mixture of the frozen blocks and the accumulator; norm), for `rows`.
    void mix_and_norm(RowRange rows, std::span<const float> mixer, std::span<const float> norm,
                      std::span<float> out) const;

    // The accumulator becomes the next frozen block; the next add() starts a new one.
    void freeze();

    // accumulator += y, or = y right after freeze(). [T, H]
    void add(std::span<const float> y);

    std::span<const float> accumulator() const { return accumulators_[num_frozen_].rows(tokens_); }

  private:
    int32_t hidden_;
    float eps_;
    int32_t tokens_ = 0;
    size_t num_frozen_ = 0;
    bool starts_anew_ = false;
    std::vector<RowBuffer> accumulators_;  // the frozen ones in order, then the running one
};

}  // namespace k3pod

#pragma once
// Kimi-K3 at its real widths, without its values.

#include <cstdint>

#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod::bench {

// The released configuration; fewer layers when `num_layers` is below 93.
ModelConfig k3_config(int32_t num_layers);

// Matrices in the formats of the NVFP4 release (FP8 tiles in the attention, BF16 elsewhere), whose
// memory nobody has written to, and vectors with values of a plausible size.
StationWeights k3_weights(const ModelConfig& config);

// Bytes of weights that one step reads: all but the table of embeddings.
int64_t streamed_weight_bytes(const ModelConfig& config, const StationWeights& weights);

// Bytes that a step reads and writes for one sequence: KDA state and convolution windows there and
// back, and the MLA cache of `context` tokens.
int64_t state_bytes_per_sequence(const ModelConfig& config, int64_t context);

}  // namespace k3pod::bench

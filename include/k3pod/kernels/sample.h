#pragma once
// From logits to a token on the device, with the bits of the CPU sampler (k3pod/sample/sampler.h):
// equal logits, parameters and history give the same id. Log-probabilities are not made here: the
// host copies the logits of rows that ask for them.

#include <cstddef>
#include <cstdint>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::kernels {

// What a row is drawn with; the fields of SamplingParams. In device memory, written by the host
// before each step.
struct SampleRow {
    float temperature = 0;
    float top_p = 1;
    float min_p = 0;
    int32_t top_k = 0;
    float presence_penalty = 0;
    float frequency_penalty = 0;
    float repetition_penalty = 1;
    int32_t history = -1;  // which history of SampleArgs::histories; -1: no penalty is asked for
    uint64_t seed = 0;
    int64_t position = 0;  // of the generated token, from 0
    // Biases and banned ids of the row: ranges in SampleArgs::bias_* and ::banned. Each id at most
    // once in its range; a banned id cannot be drawn whatever its bias.
    int32_t first_bias = 0;
    int32_t num_biases = 0;
    int32_t first_banned = 0;
    int32_t num_banned = 0;
    int32_t is_padding = 0;  // not 0: the row is left out, its id is kPaddingId
    int32_t reserved = 0;
};
static_assert(sizeof(SampleRow) == 72);

// Negative ids that sample() writes.
inline constexpr int32_t kPaddingId = -1;
inline constexpr int32_t kLogitsNotFiniteId = -2;  // a NaN or +inf among the logits
inline constexpr int32_t kNothingToDrawId = -3;    // every id is -inf or banned

struct SampleArgs {
    int32_t rows = 0;                   // R
    int32_t vocab = 0;                  // V
    const float* logits = nullptr;      // [R, V]
    const SampleRow* params = nullptr;  // [R]
    const int32_t* bias_ids = nullptr;  // null when no row has any
    const float* bias_values = nullptr;
    const int32_t* banned = nullptr;  // null when no row has any
    // How often each id was generated, -1 for ids neither in the prompt nor generated. The drawn id
    // is counted. Null when no row has a history.
    int32_t* histories = nullptr;    // [histories, V]
    std::byte* workspace = nullptr;  // sample_workspace_bytes(), aligned to 256
    int32_t* ids = nullptr;          // [R]
};
int64_t sample_workspace_bytes(int32_t rows, int32_t vocab);
Status sample(const SampleArgs& args, CudaStream stream);

// Makes history[V] that of a sequence which has generated nothing: -1, 0 at the prompt's ids.
struct SampleHistoryArgs {
    int32_t vocab = 0;
    int32_t* history = nullptr;       // [V]
    const int32_t* prompt = nullptr;  // [num_prompt] device, ids in [0, V)
    int32_t num_prompt = 0;
};
Status start_sample_history(const SampleHistoryArgs& args, CudaStream stream);

}  // namespace k3pod::kernels

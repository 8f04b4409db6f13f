#pragma once
// From logits to a token. Deterministic: the same logits, parameters, history and seed give the same id
// whatever else runs, because the random number of a draw is a function of (seed, position) only.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

struct SamplingParams {
    float temperature = 1.0f;         // [0, 2]; 0 is greedy (lowest id wins a tie)
    float top_p = 1.0f;               // (0, 1]
    int32_t top_k = 0;                // 0 or -1: off
    float min_p = 0.0f;               // [0, 1]
    float presence_penalty = 0.0f;    // [-2, 2], over generated tokens
    float frequency_penalty = 0.0f;   // [-2, 2]
    float repetition_penalty = 1.0f;  // (0, 2], over prompt and generated tokens
    std::map<int32_t, float> logit_bias;  // [-100, 100]
    uint64_t seed = 0;
    int32_t num_logprobs = -1;        // -1: none; 0..20 alternatives with each token
};

// Limits above, by field name. vocab checks logit_bias keys.
Status check_sampling(const SamplingParams& params, int32_t vocab);

struct TokenLogprob {
    int32_t id = 0;
    float logprob = 0;  // of the raw logits' softmax, before temperature and penalties
};

struct SampledToken {
    int32_t id = 0;
    TokenLogprob logprob;                // filled when num_logprobs >= 0
    std::vector<TokenLogprob> top;       // best first
};

// One per sequence: keeps the counts that penalties need. Step thread.
class Sampler {
  public:
    Sampler(const SamplingParams& params, std::span<const int32_t> prompt, int32_t vocab);
    ~Sampler();
    // Draws the token for the `position`-th generated token from logits [V]; `banned` ids (e.g. stop ids
    // under min_tokens) cannot be drawn. kInternal when the logits are not finite. Counts the token.
    Result<SampledToken> draw(std::span<const float> logits, int64_t position,
                              std::span<const int32_t> banned);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace k3pod

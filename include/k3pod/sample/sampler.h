#pragma once
// From logits to a token. Deterministic: the same logits, parameters, history and seed give the
// same id whatever else runs, because the random number of a draw is a function of (seed, position)
// only.
//
// Order of work: repetition, frequency and presence penalty, logit_bias, banned ids; temperature;
// top_k; top_p over what top_k left; min_p. Ties are broken towards the lower id everywhere.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

inline constexpr int32_t kMaxLogprobs = 20;
// Logits are divided by the penalty; below this they could leave fp32.
inline constexpr double kMinRepetitionPenalty = 1e-6;
// Stands for minus infinity in log-probabilities, so that they can be written as JSON numbers.
inline constexpr float kMinLogprob = -9999.0f;

struct SamplingParams {
    float temperature = 1.0f;        // [0, 2]; below 1e-5 is greedy
    float top_p = 1.0f;              // (0, 1]
    int32_t top_k = 0;               // 0 or -1: off
    float min_p = 0.0f;              // [0, 1], of the most likely id's probability
    float presence_penalty = 0.0f;   // [-2, 2], over generated tokens
    float frequency_penalty = 0.0f;  // [-2, 2]
    float repetition_penalty =
        1.0f;  // [kMinRepetitionPenalty, 2], over prompt and generated tokens
    std::map<int32_t, float> logit_bias;  // [-100, 100]
    uint64_t seed = 0;
    int32_t num_logprobs = -1;  // -1: none; 0..kMaxLogprobs alternatives with each token
};

// Limits above, by field name. vocab checks logit_bias keys.
Status check_sampling(const SamplingParams& params, int32_t vocab);

struct TokenLogprob {
    int32_t id = 0;
    float logprob = 0;  // of the raw logits' softmax, before temperature and penalties
};

struct SampledToken {
    int32_t id = 0;
    TokenLogprob logprob;  // filled when num_logprobs >= 0
    std::vector<TokenLogprob>
        top;  // num_logprobs entries, best first, whether or not `id` is among them
};

// Scratch memory of a draw, about 12 bytes per id of the vocabulary. One serves all samplers of a
// thread, one draw at a time.
class SamplerWorkspace {
  public:
    explicit SamplerWorkspace(int32_t vocab);
    ~SamplerWorkspace();

  private:
    friend class Sampler;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// One per sequence: keeps the counts that penalties need. Step thread.
class Sampler {
  public:
    // `params` have passed check_sampling. Borrows `workspace`, which was made for the same vocab.
    // Penalties cost 8 bytes per id of the vocabulary, allocated here and only when asked for.
    Sampler(const SamplingParams& params, std::span<const int32_t> prompt,
            SamplerWorkspace& workspace);
    ~Sampler();

    // Draws the `position`-th generated token (from 0) from logits [V]; `banned` ids (e.g. stop ids
    // under min_tokens) cannot be drawn. Counts the token. kInternal when the logits hold a NaN or
    // +inf, or leave no id to draw. Allocates only SampledToken::top.
    Result<SampledToken> draw(std::span<const float> logits, int64_t position,
                              std::span<const int32_t> banned);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace k3pod

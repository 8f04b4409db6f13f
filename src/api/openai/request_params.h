#pragma once
// What chat and text completions have in common: sampling, limits, stops and the form of the
// answer.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "api/openai/json_fields.h"
#include "k3pod/sample/sampler.h"

namespace k3pod {

// What a request is read against.
struct RequestRules {
    std::string model_name;
    int32_t vocab = 0;
    float default_temperature = 1;
    float default_top_p = 1;
};

struct RequestParams {
    SamplingParams sampling;
    std::optional<int64_t> seed;
    int32_t num_choices = 1;  // n
    int32_t max_tokens = 0;   // 0: the request names none
    int32_t min_tokens = 0;
    bool ignore_eos = false;
    std::vector<std::string> stops;
    std::vector<int32_t> stop_token_ids;
    bool include_stop_text = false;

    bool stream = false;
    bool include_usage = false;             // a chunk of its own at the end
    bool continuous_usage = false;          // with every chunk
    bool include_internal_content = false;  // token ids in delta.internal_content
    bool return_token_ids = false;
};

// Choices of one request: n times the number of prompts.
inline constexpr int32_t kMaxChoices = 128;
ApiError too_many_choices(size_t num_prompts, int32_t num_choices, int64_t limit);

// All but the fields that chat and completions read in their own way: prompt, logprobs, max_tokens.
RequestParams read_params(const JsonFields& fields, const RequestRules& rules);

// Sets max_tokens from the first of `names` that the request has, else to `fallback`.
void read_max_tokens(const JsonFields& fields, std::initializer_list<const char*> names,
                     int32_t fallback, RequestParams& params);

// Random seeds for requests that name none; derived ones for all choices after the first, so that
// they differ from each other and from those of the neighbouring seed.
uint64_t random_seed();
uint64_t choice_seed(uint64_t seed, int32_t choice);

}  // namespace k3pod

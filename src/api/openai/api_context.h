#pragma once
// What the handlers of all routes share.

#include <string>

#include "api/openai/request_params.h"
#include "k3pod/api/openai_api.h"

namespace k3pod {

struct ApiContext {
    ApiOptions options;
    GenerationService& service;
    const Tokenizer& tokenizer;
    const ChatWording& wording;
    const Clock& clock;
    MetricsRegistry& metrics;
    int64_t created = 0;              // seconds since the epoch
    int64_t longest_token_bytes = 1;  // no text has fewer tokens than its bytes over this

    RequestRules rules() const {
        return {.model_name = options.model_name,
                .vocab = service.vocab_size(),
                .default_temperature = options.default_temperature,
                .default_top_p = options.default_top_p};
    }
};

}  // namespace k3pod

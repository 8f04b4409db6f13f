#pragma once
// One request between submit() and on_finish(). Step thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "k3pod/engine/generation_service.h"

namespace k3pod {

struct ActiveRequest {
    RequestHandle handle = 0;
    GenerationRequest request;  // its prompt has moved to `ids`
    std::shared_ptr<GenerationSink> sink;
    std::vector<int32_t> ids;  // prompt, then what was generated
    int32_t prompt_tokens = 0;
    int32_t prefilled_tokens = 0;  // of the prompt, already in the state

    // From admission on.
    bool is_running = false;
    SequenceState state;
    std::optional<Sampler> sampler;

    TimePoint queued{};
    TimePoint scheduled{};    // when is_running
    TimePoint first_token{};  // when generated_tokens() > 0
    TimePoint last_token{};

    int32_t generated_tokens() const { return static_cast<int32_t>(ids.size()) - prompt_tokens; }
};

}  // namespace k3pod

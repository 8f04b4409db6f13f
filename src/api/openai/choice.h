#pragma once
// One choice of an answer while it is generated: counts, stop conditions, and what is not sent yet.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "api/openai/choice_reader.h"
#include "k3pod/engine/generation_service.h"

namespace k3pod {

struct Usage {
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;
    int64_t reasoning_tokens = 0;
};

// Why a choice stopped, for clients that want to know: nothing, a string or an id of the request.
using StopReason = std::variant<std::monostate, std::string, int32_t>;

class Choice {
  public:
    struct Setup {
        int32_t index = 0;
        int64_t prompt_tokens = 0;
        int32_t min_tokens = 0;
        std::set<int32_t> end_ids;         // end it; the model's own, never shown
        std::set<int32_t> stop_token_ids;  // end it; the request's
        bool include_stop_text = false;    // shows the latter
        std::unique_ptr<ChoiceReader> reader;
    };
    explicit Choice(Setup setup) : setup_(std::move(setup)) {}

    // False when a stop string is complete.
    bool push(const SampledToken& token, std::vector<Piece>& pieces);
    void finish(FinishReason reason, std::vector<Piece>& pieces);

    int32_t index() const { return setup_.index; }
    Usage usage() const { return usage_; }
    bool has_tokens() const { return usage_.completion_tokens > 0; }
    // Of a finished choice: "stop", "length" or "tool_calls".
    const char* finish_reason() const { return finish_reason_; }
    const StopReason& stop_reason() const { return stop_reason_; }
    // Ids generated since the last call.
    std::vector<int32_t> take_ids();

  private:
    Setup setup_;
    Usage usage_{.prompt_tokens = setup_.prompt_tokens};
    std::vector<int32_t> ids_;
    const char* finish_reason_ = "stop";
    StopReason stop_reason_;
};

}  // namespace k3pod

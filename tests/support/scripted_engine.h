#pragma once
// An engine over a ScriptedModel, and what it borrows, in one object: for tests of the engine and
// of what stands on it.

#include <memory>
#include <string>

#include "k3pod/base/check.h"
#include "k3pod/engine/generation_service.h"
#include "tests/support/scripted_model.h"

namespace k3pod::testing {

// Stands for "for ever" in tests: a scripted engine says so many tokens in seconds, not
// milliseconds.
inline constexpr int32_t kEndless = 4'000'000;

struct ScriptedEngineOptions {
    int32_t vocab = 64;
    // A pool of 4,096 tokens.
    SchedulerLimits limits = {.max_num_seqs = 4,
                              .num_pages = 64,
                              .page_tokens = kPageTokens,
                              .max_batch_tokens = 64,
                              .queue_limit = 8,
                              .max_model_len = 4096,
                              .prefill_alignment = kPrefillAlignment};
    int32_t default_max_tokens = 0;
    bool accepts = true;
    const Clock* clock = nullptr;  // null: a SteadyClock

    // Room for a request of kEndless tokens for each of `max_num_seqs`.
    static ScriptedEngineOptions endless(int32_t max_num_seqs) {
        ScriptedEngineOptions options;
        options.limits.max_num_seqs = max_num_seqs;
        options.limits.max_model_len = kEndless + 10'000;
        options.limits.num_pages = max_num_seqs * (options.limits.max_model_len / kPageTokens + 1);
        return options;
    }
};

class ScriptedEngine {
  public:
    static constexpr const char* kModelName = "scripted";

    explicit ScriptedEngine(const ScriptedEngineOptions& options = {})
        : model(options.vocab),
          state({.num_slots = options.limits.max_num_seqs, .num_pages = options.limits.num_pages}) {
        const EngineOptions engine_options = {options.limits, options.default_max_tokens,
                                              kModelName};
        auto created = Engine::create(engine_options, model, state, experts, options.vocab,
                                      options.clock ? *options.clock : steady_clock, metrics);
        K3POD_CHECK(created.is_ok(), created.status().message().c_str());
        engine = std::move(*created);
        if (options.accepts) engine->set_accepting(true, "");
    }

    ScriptedModel model;
    StateStore state;
    NullExpertPort experts;
    SteadyClock steady_clock;
    MetricsRegistry metrics;
    std::unique_ptr<Engine> engine;  // last: it borrows the others
};

}  // namespace k3pod::testing

#pragma once
// A model without weights: it says what a test has written down, or, without a script, something
// that depends on the sequence's own ids only. It needs no state, an expert port is never called,
// and a hook can slow a step, fail it or stop it half-way.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "k3pod/model/model.h"

namespace k3pod::testing {

// Answers every dispatch with zeros; a ScriptedModel never dispatches.
class NullExpertPort final : public ExpertPort {
  public:
    Status dispatch(const RoutedRows&) override { return Status::ok(); }
    Status combine(std::span<float> out) override;
    std::string holding() const override { return held; }
    void stop_holding(const Status& why) override {
        if (when_stopped) when_stopped(why);
    }

    std::string held;                                 // set before the first request
    std::function<void(const Status&)> when_stopped;  // the same
};

class ScriptedModel final : public Model {
  public:
    explicit ScriptedModel(int32_t vocab) : vocab_(vocab) {}

    // What follows `prompt`; once it is said, `end_id` for ever. Under temperature 0 the scripted
    // ids are what comes out; at temperature 1 another id has a chance below 1e-9 (V up to 2,304).
    // Any thread, before the request is submitted.
    void script(std::vector<int32_t> prompt, std::vector<int32_t> continuation, int32_t end_id);
    // The same for every prompt without a script of its own.
    void script_any(std::vector<int32_t> continuation, int32_t end_id);

    // Runs on the step thread at the start of each step; an error fails the step. It may block,
    // which stalls the engine. Set it before the first request, or from within the hook.
    using Hook = std::function<Status(const ModelStep&)>;
    void set_hook(Hook hook) { hook_ = std::move(hook); }
    // Runs for each row of logits [V] before it is handed out, e.g. to put a NaN into it; `prompt`
    // and `num_generated` tell whose it is.
    using LogitsHook = std::function<void(std::span<const int32_t> prompt, int32_t num_generated,
                                          std::span<float> logits)>;
    void set_logits_hook(LogitsHook hook) { logits_hook_ = std::move(hook); }

    Status forward(const ModelStep& step, ExpertPort& experts, std::span<float> logits,
                   ForwardProbe* probe) override;

  private:
    struct Script {
        std::vector<int32_t> continuation;
        int32_t end_id = 0;
    };
    struct History {
        std::vector<int32_t> ids;
        size_t prompt_tokens = 0;  // 0 until the whole prompt was seen
    };
    History& extend_history(const SequenceChunk& chunk);
    void write_logits(const History& history, std::span<float> row);
    const Script* find_script(std::span<const int32_t> prompt) const;

    const int32_t vocab_;
    Hook hook_;
    LogitsHook logits_hook_;
    mutable std::mutex mutex_;  // guards the scripts
    std::map<std::vector<int32_t>, Script> scripts_;
    std::vector<Script> default_script_;    // none or one
    std::map<int32_t, History> histories_;  // by slot
};

}  // namespace k3pod::testing

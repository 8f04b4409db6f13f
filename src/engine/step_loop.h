#pragma once
// What the step thread does: carries out commands, asks the scheduler for a step, runs it through
// the model, draws tokens and hands them out. No locks; everything here belongs to one thread.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/active_request.h"
#include "engine/engine_metrics.h"
#include "engine/front_desk.h"
#include "k3pod/engine/generation_service.h"

namespace k3pod {

class StepLoop {
  public:
    // What the loop works with. Borrowed.
    struct Parts {
        Model& model;
        StateStore& state;
        ExpertPort& experts;
        const Clock& clock;
        FrontDesk& desk;
        EngineMetrics& metrics;
    };

    StepLoop(const SchedulerLimits& limits, int32_t vocab, const Parts& parts);

    // Until the desk is stopped; then fails what is left.
    void run();

  private:
    // One chunk of the step at hand, beside the model's view of it.
    struct BatchEntry {
        ActiveRequest* request;
        int32_t num_tokens;
        bool is_prompt;
        bool samples;
    };

    void carry_out(SubmitCommand&& command);
    void carry_out(const CancelCommand& command);
    void carry_out(const FailWaitingCommand& command);
    void carry_out(const FailAllCommand& command);

    void start(std::span<const SequenceId> admitted);
    void run_step(const StepPlan& plan);
    void gather(const StepPlan& plan);
    void record_step(Nanoseconds duration);
    void fail_step(const Status& why);
    int32_t deliver();  // Gives the number of tokens drawn.
    bool deliver_token(ActiveRequest& request, std::span<const float> logits);
    // Hands the token to the sink; ends the request when it was the last.
    void hand_out(ActiveRequest& request, const SampledToken& token);
    void finish(RequestHandle handle, FinishReason reason, const Status& status = {});
    template <class Predicate>
    void fail_if(Predicate predicate, const Status& why);
    void publish_kv_usage();

    const int32_t vocab_;
    Parts parts_;
    Scheduler scheduler_;
    SamplerWorkspace sampler_workspace_;
    std::unordered_map<RequestHandle, ActiveRequest> active_;
    uint64_t step_ = 0;

    // Reused by every step.
    std::vector<SequenceChunk> chunks_;
    std::vector<BatchEntry> batch_;
    std::vector<float> logits_pool_;  // [max_num_seqs, V]
    std::span<float> logits_;         // its part for the step at hand: [N, V], N chunks that sample
};

}  // namespace k3pod

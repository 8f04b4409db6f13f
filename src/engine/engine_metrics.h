#pragma once
// The engine's figures: vLLM's names, labels, buckets and meanings, so that dashboards made for it
// work, and k3pod_engine_ names for what it has no word for.
//
// Every request that was accepted is counted once under its finish reason when it ends, and so are
// its prompt tokens that were computed and its generated tokens; those sums over the reasons equal
// vllm:prompt_tokens_total and vllm:generation_tokens_total whenever nothing runs.

#include <array>
#include <string>

#include "engine/active_request.h"
#include "k3pod/metrics/metrics.h"

namespace k3pod {

enum class StepKind : uint8_t { kPrefill, kDecode, kMixed };

// Any thread.
class EngineMetrics {
  public:
    EngineMetrics(MetricsRegistry& registry, const std::string& model_name, int32_t max_model_len);

    void set_requests(int32_t num_running, int32_t num_waiting);
    void set_kv_usage(double share);
    void count_rejected(Code code);

    void on_scheduled(const ActiveRequest& request);
    void on_step(StepKind kind, double seconds, int32_t prompt_tokens, int32_t decode_tokens);
    void on_step_failed();
    void on_logits_refused();
    // Before the token's time is written to the request.
    void on_token(const ActiveRequest& request, TimePoint now);
    void on_finished(const ActiveRequest& request, FinishReason reason, TimePoint now);

  private:
    struct Outcome {
        Counter* requests;
        Counter* prompt_tokens;
        Counter* generated_tokens;
    };
    static constexpr std::array kReasons = {FinishReason::kStop, FinishReason::kLength,
                                            FinishReason::kCancelled, FinishReason::kError};
    static constexpr std::array kRejections = {Code::kInvalidArgument, Code::kResourceExhausted,
                                               Code::kUnavailable};
    static constexpr std::array kKindNames = {"prefill", "decode", "mixed"};

    Counter& counter(const std::string& name, const std::string& help, const Labels& extra = {});
    Histogram& seconds(const std::string& name, const std::string& help);
    Histogram& tokens(const std::string& name, const std::string& help);

    MetricsRegistry& registry_;
    const Labels labels_;
    const std::vector<double> token_bounds_;

    Gauge& running_;
    Gauge& waiting_;
    Gauge& kv_usage_;
    Counter& prompt_tokens_;
    Counter& generated_tokens_;
    Counter& failed_steps_;
    Counter& refused_logits_;
    Histogram& step_tokens_;
    Histogram& time_to_first_token_;
    Histogram& inter_token_latency_;
    Histogram& time_per_output_token_;
    Histogram& e2e_time_;
    Histogram& queue_time_;
    Histogram& prefill_time_;
    Histogram& decode_time_;
    Histogram& inference_time_;
    Histogram& request_prompt_tokens_;
    Histogram& request_generated_tokens_;
    Histogram& request_max_tokens_;
    std::array<Outcome, kReasons.size()> outcomes_;
    std::array<Counter*, kRejections.size()> rejected_;
    std::array<Histogram*, kKindNames.size()> step_time_;
};

}  // namespace k3pod

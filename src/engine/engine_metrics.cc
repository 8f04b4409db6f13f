#include "engine/engine_metrics.h"

#include <algorithm>

namespace k3pod {
namespace {

const std::vector<double>& step_token_bounds() {
    static const std::vector<double> bounds{1,   8,    16,   32,   64,   128,  256,
                                            512, 1024, 2048, 4096, 8192, 16384};
    return bounds;
}

Labels with(Labels labels, const Labels& extra) {
    labels.insert(extra.begin(), extra.end());
    return labels;
}

double seconds_between(TimePoint from, TimePoint to) {
    return to_seconds(to - from);
}

}  // namespace

EngineMetrics::EngineMetrics(MetricsRegistry& registry, const std::string& model_name,
                             int32_t max_model_len)
    : registry_(registry),
      labels_{{"model_name", model_name}, {"engine", "0"}},
      token_bounds_(one_two_five_buckets(max_model_len)),
      running_(registry.gauge("vllm:num_requests_running", "Requests that hold a slot.", labels_)),
      waiting_(registry.gauge("vllm:num_requests_waiting", "Requests in the queue.", labels_)),
      kv_usage_(registry.gauge("vllm:kv_cache_usage_perc",
                               "Share of the cache pages that are reserved, 0 to 1.", labels_)),
      prompt_tokens_(counter("vllm:prompt_tokens_total", "Prompt tokens computed.")),
      generated_tokens_(counter("vllm:generation_tokens_total", "Tokens generated.")),
      failed_steps_(counter("k3pod_engine_failed_steps_total",
                            "Steps that ended with an error of the model or the experts.")),
      refused_logits_(counter("k3pod_engine_refused_logits_total",
                              "Requests ended because their logits were not finite.")),
      step_tokens_(registry.histogram("vllm:iteration_tokens_total",
                                      "Tokens computed in one step, prompt and decode.",
                                      step_token_bounds(), labels_)),
      time_to_first_token_(registry.histogram("vllm:time_to_first_token_seconds",
                                              "From arrival to the first token.", ttft_buckets(),
                                              labels_)),
      inter_token_latency_(registry.histogram("vllm:inter_token_latency_seconds",
                                              "Between two tokens of a request.",
                                              inter_token_buckets(), labels_)),
      time_per_output_token_(
          registry.histogram("vllm:time_per_output_token_seconds",
                             "The same as vllm:inter_token_latency_seconds under its former name.",
                             inter_token_buckets(), labels_)),
      e2e_time_(seconds("vllm:e2e_request_latency_seconds", "From arrival to the end.")),
      queue_time_(seconds("vllm:request_queue_time_seconds", "From queued to scheduled.")),
      prefill_time_(
          seconds("vllm:request_prefill_time_seconds", "From scheduled to the first token.")),
      decode_time_(
          seconds("vllm:request_decode_time_seconds", "From the first to the last token.")),
      inference_time_(
          seconds("vllm:request_inference_time_seconds", "From scheduled to the last token.")),
      request_prompt_tokens_(
          tokens("vllm:request_prompt_tokens", "Prompt tokens computed for a request.")),
      request_generated_tokens_(
          tokens("vllm:request_generation_tokens", "Tokens generated for a request.")),
      request_max_tokens_(tokens("vllm:request_params_max_tokens", "max_tokens of a request.")) {
    counter("vllm:num_preemptions_total", "Always 0: memory is reserved at admission.");
    for (size_t i = 0; i < kReasons.size(); ++i) {
        const Labels reason = {{"finished_reason", finish_reason_name(kReasons[i])}};
        outcomes_[i] = {&counter("vllm:request_success_total", "Requests that ended.", reason),
                        &counter("k3pod_engine_prompt_tokens_total",
                                 "Prompt tokens computed for requests that ended.", reason),
                        &counter("k3pod_engine_generation_tokens_total",
                                 "Tokens generated for requests that ended.", reason)};
    }
    for (size_t i = 0; i < kRejections.size(); ++i) {
        rejected_[i] = &counter("k3pod_engine_rejected_requests_total", "Requests not accepted.",
                                {{"code", std::string(code_name(kRejections[i]))}});
    }
    for (size_t i = 0; i < kKindNames.size(); ++i) {
        step_time_[i] =
            &registry.histogram("k3pod_engine_step_seconds", "Forward pass of one step.",
                                exchange_buckets(), with(labels_, {{"kind", kKindNames[i]}}));
    }
}

Counter& EngineMetrics::counter(const std::string& name, const std::string& help,
                                const Labels& extra) {
    return registry_.counter(name, help, with(labels_, extra));
}

Histogram& EngineMetrics::seconds(const std::string& name, const std::string& help) {
    return registry_.histogram(name, help, request_time_buckets(), labels_);
}

Histogram& EngineMetrics::tokens(const std::string& name, const std::string& help) {
    return registry_.histogram(name, help, token_bounds_, labels_);
}

void EngineMetrics::set_requests(int32_t num_running, int32_t num_waiting) {
    running_.set(num_running);
    waiting_.set(num_waiting);
}

void EngineMetrics::set_kv_usage(double share) {
    kv_usage_.set(share);
}

void EngineMetrics::count_rejected(Code code) {
    const auto known = std::find(kRejections.begin(), kRejections.end(), code);
    if (known != kRejections.end()) rejected_[size_t(known - kRejections.begin())]->add();
}

void EngineMetrics::on_scheduled(const ActiveRequest& request) {
    queue_time_.observe(seconds_between(request.queued, request.scheduled));
}

void EngineMetrics::on_step(StepKind kind, double seconds, int32_t prompt_tokens,
                            int32_t decode_tokens) {
    step_time_[static_cast<size_t>(kind)]->observe(seconds);
    step_tokens_.observe(prompt_tokens + decode_tokens);
    prompt_tokens_.add(prompt_tokens);
}

void EngineMetrics::on_step_failed() {
    failed_steps_.add();
}

void EngineMetrics::on_logits_refused() {
    refused_logits_.add();
}

void EngineMetrics::on_token(const ActiveRequest& request, TimePoint now) {
    generated_tokens_.add();
    if (request.generated_tokens() == 0) {
        time_to_first_token_.observe(seconds_between(request.request.arrival, now));
        prefill_time_.observe(seconds_between(request.scheduled, now));
        return;
    }
    const double gap = seconds_between(request.last_token, now);
    inter_token_latency_.observe(gap);
    time_per_output_token_.observe(gap);
}

void EngineMetrics::on_finished(const ActiveRequest& request, FinishReason reason, TimePoint now) {
    const Outcome& outcome = outcomes_[static_cast<size_t>(reason)];
    outcome.requests->add();
    outcome.prompt_tokens->add(request.prefilled_tokens);
    outcome.generated_tokens->add(request.generated_tokens());
    request_prompt_tokens_.observe(request.prefilled_tokens);
    request_generated_tokens_.observe(request.generated_tokens());
    request_max_tokens_.observe(request.request.max_tokens);
    e2e_time_.observe(seconds_between(request.request.arrival, now));
    if (request.generated_tokens() == 0) return;
    decode_time_.observe(seconds_between(request.first_token, request.last_token));
    inference_time_.observe(seconds_between(request.scheduled, request.last_token));
}

}  // namespace k3pod

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "engine/check_request.h"
#include "engine/engine_metrics.h"
#include "engine/front_desk.h"
#include "engine/step_loop.h"
#include "k3pod/engine/generation_service.h"

namespace k3pod {
namespace {

class EngineImpl final : public Engine {
  public:
    EngineImpl(const EngineOptions& options, Model& model, StateStore& state, ExpertPort& experts,
               int32_t vocab, const Clock& clock, MetricsRegistry& metrics)
        : options_(options),
          vocab_(vocab),
          state_(state),
          experts_(experts),
          clock_(clock),
          sizes_(options.limits),
          metrics_(metrics, options.model_name, options.limits.max_model_len),
          desk_(options.limits, clock, metrics_),
          loop_(options.limits, vocab, {model, state, experts, clock, desk_, metrics_}),
          thread_([this] { loop_.run(); }) {}

    ~EngineImpl() override {
        desk_.stop();
        experts_.stop_holding(unavailable("the station is shutting down"));
        thread_.join();
    }

    Result<RequestHandle> submit(GenerationRequest request,
                                 std::shared_ptr<GenerationSink> sink) override {
        Result<RequestHandle> handle = checked_submit(std::move(request), std::move(sink));
        if (!handle) metrics_.count_rejected(handle.status().code());
        return handle;
    }

    void cancel(RequestHandle handle) override { desk_.cancel(handle); }

    ServiceState state() const override {
        ServiceState state = desk_.state();
        state.holding = experts_.holding();
        state.kv_usage =
            1.0 - static_cast<double>(state_.num_free_pages()) / state_.shape().num_pages;
        return state;
    }

    int32_t vocab_size() const override { return vocab_; }
    int32_t max_model_len() const override { return options_.limits.max_model_len; }
    int64_t max_requests() const override {
        return int64_t{options_.limits.max_num_seqs} + options_.limits.queue_limit;
    }

    int32_t default_max_tokens(int32_t prompt_tokens) const override {
        const int64_t pool_tokens =
            int64_t{options_.limits.num_pages} * options_.limits.page_tokens;
        int64_t room =
            std::min<int64_t>(options_.limits.max_model_len, pool_tokens) - prompt_tokens;
        if (options_.default_max_tokens > 0) {
            room = std::min<int64_t>(room, options_.default_max_tokens);
        }
        return static_cast<int32_t>(std::max<int64_t>(room, 1));
    }

    void set_accepting(bool accepts, const std::string& reason) override {
        desk_.set_accepting(accepts, reason);
    }

    void fail_all(const Status& why) override { desk_.fail_all(why); }

    int32_t drain(Nanoseconds limit) override {
        desk_.close("draining: the station is shutting down");
        if (desk_.wait_empty(clock_.now() + limit)) return 0;
        const int32_t failed_before = desk_.num_failed();
        const Status why = unavailable(fmt::format(
            "the station shut down and the request was not done within {:g} s; send it again later",
            to_seconds(limit)));
        desk_.fail_all(why);
        experts_.stop_holding(why);
        desk_.wait_empty();
        return desk_.num_failed() - failed_before;
    }

  private:
    Result<RequestHandle> checked_submit(GenerationRequest request,
                                         std::shared_ptr<GenerationSink> sink) {
        K3POD_TRY(check_request(request, vocab_));
        K3POD_TRY(sizes_.check(static_cast<int32_t>(request.prompt.size()), request.max_tokens));
        return desk_.submit(std::move(request), std::move(sink));
    }

    const EngineOptions options_;
    const int32_t vocab_;
    const StateStore& state_;
    ExpertPort& experts_;
    const Clock& clock_;
    const Scheduler sizes_;  // only for check(), which any thread may call
    EngineMetrics metrics_;
    FrontDesk desk_;
    StepLoop loop_;
    std::thread thread_;  // last: it uses all of the above
};

Status check_shape(const SchedulerLimits& limits, const StateShape& shape) {
    if (limits.max_num_seqs > shape.num_slots || limits.num_pages > shape.num_pages) {
        return invalid_argument(
            fmt::format("the engine is to run {} sequences on {} pages, but the state has {} slots "
                        "and {} pages",
                        limits.max_num_seqs, limits.num_pages, shape.num_slots, shape.num_pages));
    }
    if (limits.page_tokens != kPageTokens) {
        return invalid_argument(fmt::format("page_tokens is {}; the state's pages have {}",
                                            limits.page_tokens, kPageTokens));
    }
    if (limits.prefill_alignment % kPrefillAlignment != 0) {
        return invalid_argument(fmt::format("prefill_alignment is {}; it must be a multiple of {}",
                                            limits.prefill_alignment, kPrefillAlignment));
    }
    return Status::ok();
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
    switch (reason) {
        case FinishReason::kStop:
            return "stop";
        case FinishReason::kLength:
            return "length";
        case FinishReason::kCancelled:
            return "abort";
        case FinishReason::kError:
            return "error";
    }
    return "unknown";
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, Model& model,
                                               StateStore& state, ExpertPort& experts,
                                               int32_t vocab, const Clock& clock,
                                               MetricsRegistry& metrics) {
    K3POD_TRY(check_limits(options.limits));
    K3POD_TRY(check_shape(options.limits, state.shape()));
    if (vocab < 1)
        return invalid_argument(fmt::format("vocab is {}; it must be at least 1", vocab));
    return std::unique_ptr<Engine>(
        std::make_unique<EngineImpl>(options, model, state, experts, vocab, clock, metrics));
}

}  // namespace k3pod

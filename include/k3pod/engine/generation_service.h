#pragma once
// What the API and the tests call to generate tokens.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"
#include "k3pod/metrics/metrics.h"
#include "k3pod/model/model.h"
#include "k3pod/sample/sampler.h"
#include "k3pod/schedule/scheduler.h"

namespace k3pod {

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };
const char* finish_reason_name(FinishReason reason);  // "stop", "length", "abort", "error"

struct GenerationRequest {
    std::string request_id;       // for logs
    std::vector<int32_t> prompt;  // at least one id, each in [0, V)
    SamplingParams sampling;
    int32_t max_tokens = 0;         // > 0
    int32_t min_tokens = 0;         // stop ids are banned before it; <= max_tokens
    std::vector<int32_t> stop_ids;  // end the sequence; the id itself is delivered
    bool ignore_eos = false;        // stop_ids neither end it nor are banned
    // When the request came in, before tokenisation: TTFT and end-to-end time start here. Default:
    // the moment of submit().
    TimePoint arrival{};
};

// Receives one request's tokens, on the step thread: must not block, throw or call the service.
class GenerationSink {
  public:
    virtual ~GenerationSink() = default;
    // Prefill starts now (left the queue).
    virtual void on_scheduled() {}
    // Returns false to end the sequence with kStop (a stop string is complete): no further token
    // follows.
    virtual bool on_token(const SampledToken& token) = 0;
    // Exactly once, last. `status` says why for kError (503 unavailable, 504, non-finite logits
    // ...) and is ok otherwise. By now the request's memory is free and its metrics are written.
    virtual void on_finish(FinishReason reason, const Status& status) = 0;
};

struct ServiceState {
    bool accepts = false;  // false: loading, draining or a node is lost for long
    // One sentence that names the nodes, when it does not accept, or accepts while a node is lost.
    std::string reason;
    int32_t num_running = 0;
    int32_t num_waiting = 0;
    double kv_usage = 0;  // 0..1
    // While requests wait or run: since the last step finished (a token or a piece of a prompt) or
    // the first of them came. 0 when idle. Grows when the step thread or what it waits for is
    // stuck.
    double seconds_since_progress = 0;
    int64_t num_generated_tokens = 0;  // since the start
    // While a step is held for a lost server: "waiting for spark-1 for 3.2 s at layer 5".
    std::string holding{};
};

using RequestHandle = uint64_t;

class GenerationService {
  public:
    virtual ~GenerationService() = default;
    // Queues a request. The sink is shared until on_finish has returned; when submit fails it is
    // never called. Any thread. kInvalidArgument: can never run (field, context, pool; with
    // figures). kUnavailable: loading, draining, node lost (with its name). kResourceExhausted:
    // queue full.
    virtual Result<RequestHandle> submit(GenerationRequest request,
                                         std::shared_ptr<GenerationSink> sink) = 0;
    // Ends it with kCancelled within one step, queued, prefilling or decoding. Unknown handles are
    // ignored. Any thread.
    virtual void cancel(RequestHandle handle) = 0;
    virtual ServiceState state() const = 0;
    virtual int32_t vocab_size() const = 0;
    virtual int32_t max_model_len() const = 0;
    // Requests that can be here at once, running and waiting: more submitted together never fit.
    virtual int64_t max_requests() const = 0;
    // Tokens a request may still generate behind `prompt_tokens` when it names no limit. At least
    // 1, so that submit() refuses a prompt that leaves no room with the figures.
    virtual int32_t default_max_tokens(int32_t prompt_tokens) const = 0;
};

struct EngineOptions {
    SchedulerLimits limits;
    int32_t default_max_tokens = 0;  // 0: what the context and the page pool leave
    std::string model_name;          // label of the vllm: metrics
};

// The engine: a step thread over scheduler, state, model, sampler and an ExpertPort.
//
// A step that fails (model or ExpertPort) ends every request that was in it with kError and that
// status (kUnavailable and kDeadlineExceeded as they are, anything else as kInternal); the others
// stay, and the next step starts at once. A request whose logits are not finite ends alone.
class Engine : public GenerationService {
  public:
    // Borrows model, state, experts, clock, metrics. Starts not accepting, with the reason
    // "loading". kInvalidArgument when the limits contradict themselves or the state's shape. The
    // destructor fails what is left with kUnavailable and waits for the step in progress.
    static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, Model& model,
                                                  StateStore& state, ExpertPort& experts,
                                                  int32_t vocab, const Clock& clock,
                                                  MetricsRegistry& metrics);
    // Opens or closes the door. When closed, submit answers kUnavailable with `reason` and requests
    // that still wait fail with the same: their clients retry elsewhere or later. Running requests
    // go on. When open, `reason` is only shown: why nothing moves at the moment. Without effect
    // once drain() has begun. Any thread.
    virtual void set_accepting(bool accepts, const std::string& reason) = 0;
    // Fails everything queued and running with `why`, within one step. Any thread.
    virtual void fail_all(const Status& why) = 0;
    // Stops accepting for good and waits until what waits and runs has finished or `limit` has
    // passed; then fails the rest with kUnavailable and waits for the step in progress, which is
    // not held any more. Returns the number failed. Any thread but the step thread.
    virtual int32_t drain(Nanoseconds limit) = 0;
};

}  // namespace k3pod

#pragma once
// A GenerationService without an engine: requests either play a script at once, inside submit(), or
// wait for the test to feed them token by token.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "k3pod/engine/generation_service.h"

namespace k3pod::testing {

class ScriptedService final : public GenerationService {
  public:
    struct Submitted {
        RequestHandle handle = 0;
        GenerationRequest request;
        std::shared_ptr<GenerationSink> sink;
    };

    explicit ScriptedService(int32_t vocab) : vocab_(vocab) {}

    // ---- what it does; set before the first request ----
    // Said to every request in turn, the last for ever; empty: requests wait for the test.
    std::vector<std::vector<int32_t>> scripts;
    // The answer to submit() from the `refuse_from`-th request on (0: all), if not ok.
    Status refusal;
    size_t refuse_from = 0;
    int32_t context = 4096;
    int32_t default_limit = 256;
    int64_t capacity = 256;
    ServiceState reported{true, {}, 0, 0, 0, 0};

    // ---- what it saw ----
    // Waits for the `index`-th request, 10 s at most; a default one when it does not come.
    Submitted submitted(size_t index);
    size_t num_submitted() const;
    // Waits until the request was cancelled; false after 10 s.
    bool wait_cancelled(RequestHandle handle);
    bool is_cancelled(RequestHandle handle) const;

    // As the engine does: tokens until a stop id, the limit, or the sink wants no more; then the
    // end.
    static void play(const Submitted& submitted, const std::vector<int32_t>& ids);

    Result<RequestHandle> submit(GenerationRequest request,
                                 std::shared_ptr<GenerationSink> sink) override;
    void cancel(RequestHandle handle) override;
    ServiceState state() const override { return reported; }
    int32_t vocab_size() const override { return vocab_; }
    int32_t max_model_len() const override { return context; }
    int64_t max_requests() const override { return capacity; }
    int32_t default_max_tokens(int32_t) const override { return default_limit; }

  private:
    const int32_t vocab_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Submitted> submitted_;
    std::set<RequestHandle> cancelled_;
};

// A token as the sampler gives it. With logprobs: its own is -0.5, alternatives are the following
// ids with -1.5, -2.5 and so on.
SampledToken sampled(int32_t id, int32_t num_logprobs = -1);

}  // namespace k3pod::testing

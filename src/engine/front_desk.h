#pragma once
// The side of the engine that other threads see: who may come in, what they asked for, how many are
// inside. All of the engine's locking is here; the step loop behind it has none.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine_metrics.h"
#include "k3pod/engine/generation_service.h"

namespace k3pod {

struct SubmitCommand {
    RequestHandle handle = 0;
    GenerationRequest request;
    std::shared_ptr<GenerationSink> sink;
    TimePoint queued{};
};
struct CancelCommand {
    RequestHandle handle = 0;
};
struct FailWaitingCommand {
    Status why;
};
struct FailAllCommand {
    Status why;
};
// Carried out in the order in which they were given, between two steps.
using Command = std::variant<SubmitCommand, CancelCommand, FailWaitingCommand, FailAllCommand>;

class FrontDesk {
  public:
    FrontDesk(const SchedulerLimits& limits, const Clock& clock, EngineMetrics& metrics);

    // Any thread.
    Result<RequestHandle> submit(GenerationRequest request, std::shared_ptr<GenerationSink> sink);
    void cancel(RequestHandle handle);
    void set_accepting(bool accepts, const std::string& reason);
    // Closes the door for good; who waits may stay.
    void close(const std::string& reason);
    void fail_all(const Status& why);
    // False when requests are left at `deadline`.
    bool wait_empty(TimePoint deadline);
    void wait_empty();
    // Requests ended by fail_all() so far.
    int32_t num_failed() const;
    // All but kv_usage.
    ServiceState state() const;
    // Ends the step loop once it has carried out what is asked so far.
    void stop();

    // Step thread. Moves what was asked into `commands` (emptied first), waiting for something when
    // `is_idle`. False after stop().
    bool take(std::vector<Command>& commands, bool is_idle);
    void note_admitted();
    void note_left(bool was_running);  // no longer counted, but its on_finish is still to come
    void note_closed();                // on_finish has returned
    void note_failed(int32_t count);
    void note_progress();

  private:
    void give(Command command);
    void publish_counts_locked();

    const SchedulerLimits limits_;
    const Clock& clock_;
    EngineMetrics& metrics_;

    mutable std::mutex mutex_;
    std::condition_variable asked_;    // commands_ or is_stopped_
    std::condition_variable emptied_;  // num_open_ is 0
    std::vector<Command> commands_;
    RequestHandle last_handle_ = 0;
    bool accepts_ = false;
    bool is_closed_ = false;
    bool is_stopped_ = false;
    std::string reason_ = "loading";
    int32_t num_waiting_ = 0;
    int32_t num_running_ = 0;
    int32_t num_open_ = 0;  // accepted, and on_finish has not returned
    int32_t num_failed_ = 0;
    TimePoint last_progress_{};
};

}  // namespace k3pod

#pragma once
// SIGTERM, SIGINT and the end of the terminal (SIGHUP) as a state. Create it first thing, before
// any thread starts, so that every thread inherits the mask.

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "k3pod/base/clock.h"

namespace k3pod {

class StopSignal {
  public:
    // What a signal does now.
    enum class Phase {
        kStarting,  // nothing is served yet (a load may take minutes): end at once with status 0
        kServing,   // wait() returns
        kDraining,  // somebody insists: end at once with status 130
    };

    // Blocks the three in this thread and its children; ignores SIGPIPE. SIGHUP is ignored where
    // neither input nor output is a terminal: a service, or nohup.
    StopSignal();
    ~StopSignal();
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;

    // Any thread.
    void set_phase(Phase phase) { phase_ = phase; }
    // As if a signal had arrived while serving. Any thread.
    void request();
    bool is_requested() const { return requested_; }
    void wait();
    // As wait(), but at most `limit`.
    void wait_for(Nanoseconds limit);

  private:
    void watch();

    const sigset_t signals_;
    std::atomic<Phase> phase_{Phase::kStarting};
    std::atomic<bool> requested_{false};
    std::atomic<bool> stopping_{false};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread watcher_;
};

}  // namespace k3pod

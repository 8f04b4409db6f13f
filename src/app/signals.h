#pragma once
// SIGTERM and SIGINT as something to wait for. Create it first thing, before any thread starts, so
// that every thread inherits the mask.

#include <atomic>
#include <thread>

#include "k3pod/base/clock.h"

namespace k3pod {

class StopSignal {
  public:
    // Blocks SIGTERM and SIGINT in this thread and its children; ignores SIGPIPE.
    StopSignal();
    ~StopSignal();

    // Until a signal arrives or request() is called.
    void wait();
    // As wait(), but at most about `limit`.
    void wait_for(Nanoseconds limit);
    // As if a signal had arrived. Any thread.
    void request();
    bool is_requested() const { return requested_.load(); }
    // From now on a second signal ends the process at once with status 130.
    void exit_on_next_signal();

  private:
    std::atomic<bool> requested_{false};
    std::thread second_signal_;
    std::atomic<bool> stopping_{false};
};

}  // namespace k3pod

#pragma once
// Sleep on a file descriptor that another thread can end.

#include <cstdint>
#include <mutex>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"

namespace k3pod::ucx {

// wake() ends every sleep in progress; with none, the next one returns at once. All for any thread.
class WakeEvent {
  public:
    WakeEvent() = default;
    ~WakeEvent();
    WakeEvent(const WakeEvent&) = delete;
    WakeEvent& operator=(const WakeEvent&) = delete;

    // Once, before anything else.
    Status open();
    // Until one of the two is readable, a wake or the timeout.
    void sleep(int fd, int other_fd, Nanoseconds timeout);
    void wake();

  private:
    int event_fd_ = -1;
    std::mutex mutex_;  // The last sleeper to leave clears the event; none may enter meanwhile.
    int num_sleepers_ = 0;
};

}  // namespace k3pod::ucx

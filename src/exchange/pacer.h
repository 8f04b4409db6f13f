#pragma once
// How a driver that polls spends its time: when it looks at the clock, when it gives its core away.
// With more processes than cores, spinning without yielding costs milliseconds an exchange, because
// the spinner holds the core that its peer needs.

#include <sched.h>

#include <cstdint>

#include "exchange/drive_mutex.h"
#include "k3pod/base/clock.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/transport/transport.h"

namespace k3pod::exchange {

class Pacer {
  public:
    explicit Pacer(WaitPolicy policy) : policy_(policy) {}

    // After each poll. False: it is time for a pause, look at the clock first.
    bool keeps_polling(int num_events) {
        if (num_events > 0) {
            is_idle_ = false;
            num_empty_ = 0;
            return ++num_busy_ % kBusyPolls != 0;
        }
        return ++num_empty_ % kEmptyPolls != 0;
    }

    // Lets urgent threads in, then yields or sleeps, as the policy and the time since the last
    // event say. The caller drives under `mutex`; when this returns, anything guarded by it may
    // have changed.
    void pause(TimePoint now, DriveMutex& mutex, Transport& transport, Nanoseconds max_sleep) {
        mutex.step_aside();
        if (policy_ == WaitPolicy::kSpin) return;
        if (!is_idle_) {
            is_idle_ = true;
            idle_since_ = now;
        }
        if (now - idle_since_ < kSleepAfter) {
            sched_yield();
            return;
        }
        mutex.unlock();
        transport.wait(max_sleep);
        mutex.lock();
    }

  private:
    static constexpr uint32_t kEmptyPolls = 20;
    static constexpr uint32_t kBusyPolls = 64;
    static constexpr Nanoseconds kSleepAfter = std::chrono::milliseconds(1);

    const WaitPolicy policy_;
    uint32_t num_empty_ = 0;
    uint32_t num_busy_ = 0;
    bool is_idle_ = false;
    TimePoint idle_since_{};
};

}  // namespace k3pod::exchange

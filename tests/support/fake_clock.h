#pragma once
// A clock that stands still until a test moves it.

#include <atomic>
#include <cstdint>

#include "k3pod/base/clock.h"

namespace k3pod::testing {

// Any thread.
class FakeClock final : public Clock {
  public:
    // Starts away from zero, so that "never" and "at the start" differ.
    TimePoint now() const override { return TimePoint(Nanoseconds(now_ns_.load())); }
    void advance(Nanoseconds by) { now_ns_ += by.count(); }

  private:
    std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace k3pod::testing

#pragma once
// Monotonic time. Code with deadlines takes a Clock&, so that tests bring a fake one and never
// sleep.

#include <chrono>

namespace k3pod {

using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Nanoseconds>;

class Clock {
  public:
    virtual ~Clock() = default;
    // Any thread.
    virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
  public:
    TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

inline double to_seconds(Nanoseconds d) {
    return std::chrono::duration<double>(d).count();
}

}  // namespace k3pod

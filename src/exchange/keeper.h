#pragma once
// A thread that does a small duty at a steady pace: it drives the transport when nobody else does.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "k3pod/base/clock.h"

namespace k3pod::exchange {

class Keeper {
  public:
    // `duty` runs every `period`, and soon after nudge().
    Keeper(Nanoseconds period, std::function<void()> duty);
    ~Keeper();  // Stops.
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;

    // Any thread, also after stop().
    void nudge();
    // After the duty in work; none begins any more. Before what the duty uses goes away.
    void stop();

  private:
    void run();

    const Nanoseconds period_;
    const std::function<void()> duty_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool is_nudged_ = false;
    bool is_stopping_ = false;
    std::thread thread_;
};

}  // namespace k3pod::exchange

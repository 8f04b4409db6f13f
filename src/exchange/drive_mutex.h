#pragma once
// The right to drive a transport. The driver polls under it for as long as it waits; a thread with
// something urgent (attach, detach) gets it between two polls.

#include <sched.h>

#include <atomic>
#include <mutex>

namespace k3pod::exchange {

class DriveMutex {
  public:
    void lock() { mutex_.lock(); }
    bool try_lock() { return mutex_.try_lock(); }
    void unlock() { mutex_.unlock(); }

    // The driver, between two polls: lets urgent threads in. A plain unlock and lock would not, as
    // a mutex is not fair.
    void step_aside() {
        if (num_urgent_.load(std::memory_order_relaxed) == 0) return;
        mutex_.unlock();
        while (num_urgent_.load(std::memory_order_relaxed) != 0) sched_yield();
        mutex_.lock();
    }

  private:
    friend class UrgentLock;
    std::mutex mutex_;
    std::atomic<int> num_urgent_{0};
};

// Takes the mutex from a driver that polls.
class UrgentLock {
  public:
    explicit UrgentLock(DriveMutex& mutex) : mutex_(mutex) {
        mutex_.num_urgent_.fetch_add(1, std::memory_order_relaxed);
        mutex_.lock();
        mutex_.num_urgent_.fetch_sub(1, std::memory_order_relaxed);
    }
    ~UrgentLock() { mutex_.unlock(); }
    UrgentLock(const UrgentLock&) = delete;
    UrgentLock& operator=(const UrgentLock&) = delete;

  private:
    DriveMutex& mutex_;
};

}  // namespace k3pod::exchange

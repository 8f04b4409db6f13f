#pragma once
// Lets a test stop another thread at a known place and let it go again.

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace k3pod::testing {

class Gate {
  public:
    static constexpr std::chrono::seconds kPatience{30};

    // Threads that pass() stop here until open(). Open at first.
    void close() {
        const std::lock_guard lock(mutex_);
        is_open_ = false;
    }
    void open() {
        {
            const std::lock_guard lock(mutex_);
            is_open_ = true;
        }
        changed_.notify_all();
    }
    // False when the gate stayed closed for kPatience.
    bool pass() {
        std::unique_lock lock(mutex_);
        ++num_arrived_;
        changed_.notify_all();
        return changed_.wait_for(lock, kPatience, [this] { return is_open_; });
    }
    // False when fewer than `count` came, counted from the start, within kPatience.
    [[nodiscard]] bool wait_arrived(int count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kPatience, [&] { return num_arrived_ >= count; });
    }
    int num_arrived() const {
        const std::lock_guard lock(mutex_);
        return num_arrived_;
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool is_open_ = true;
    int num_arrived_ = 0;
};

}  // namespace k3pod::testing

#pragma once
// Writes comments on streams that are silent, so that clients and proxies do not hang up during a
// long prefill.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "api/openai/answer.h"

namespace k3pod {

class StreamKeeper {
  public:
    explicit StreamKeeper(const Clock& clock);
    ~StreamKeeper();
    // Any thread. The answer is looked at until it is over.
    void add(const std::shared_ptr<Answer>& answer);

  private:
    void run();
    // Looks at all answers and drops those that are over; gives the earliest time of the next look.
    std::optional<TimePoint> look();

    const Clock& clock_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::weak_ptr<Answer>> new_answers_;
    bool is_stopping_ = false;
    std::vector<std::weak_ptr<Answer>> answers_;  // of the thread alone
    std::thread thread_;
};

}  // namespace k3pod

#include "stream_keeper.h"

#include <algorithm>

namespace k3pod {

StreamKeeper::StreamKeeper(const Clock& clock) : clock_(clock), thread_([this] { run(); }) {}

StreamKeeper::~StreamKeeper() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void StreamKeeper::add(const std::shared_ptr<Answer>& answer) {
    {
        const std::lock_guard lock(mutex_);
        new_answers_.push_back(answer);
    }
    changed_.notify_one();
}

void StreamKeeper::run() {
    const auto is_woken = [this] { return is_stopping_ || !new_answers_.empty(); };
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
        answers_.insert(answers_.end(), new_answers_.begin(), new_answers_.end());
        new_answers_.clear();
        lock.unlock();
        const std::optional<TimePoint> next = look();
        lock.lock();
        if (next) {
            changed_.wait_for(lock, *next - clock_.now(), is_woken);
        } else {
            changed_.wait(lock, is_woken);
        }
    }
}

std::optional<TimePoint> StreamKeeper::look() {
    std::optional<TimePoint> earliest;
    const auto is_over = [&](const std::weak_ptr<Answer>& weak) {
        const auto answer = weak.lock();
        const auto next = answer ? answer->keep_alive(clock_.now()) : std::nullopt;
        if (next && (!earliest || *next < *earliest)) earliest = next;
        return !next;
    };
    answers_.erase(std::remove_if(answers_.begin(), answers_.end(), is_over), answers_.end());
    return earliest;
}

}  // namespace k3pod

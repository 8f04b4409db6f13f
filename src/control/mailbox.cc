#include "control/mailbox.h"

#include <utility>

namespace k3pod::control {
namespace {

constexpr Nanoseconds kProgressInterval = std::chrono::milliseconds(100);
// A station sends two messages; one that sends more than it should is not listened to.
constexpr size_t kMaxMessages = 4;

}  // namespace

void Mailbox::put_message(v1::StationMessage message) {
    const std::lock_guard lock(mutex_);
    if (messages_.size() < kMaxMessages) messages_.push_back(std::move(message));
    changed_.notify_all();
}

void Mailbox::put_report(const ServerReport& report) {
    const std::lock_guard lock(mutex_);
    unsent_ = last_ = report;
    changed_.notify_all();
}

void Mailbox::close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
}

std::optional<v1::StationMessage> Mailbox::take_message(Nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return is_closed_ || !messages_.empty(); });
    if (is_closed_ || messages_.empty()) return std::nullopt;
    v1::StationMessage message = std::move(messages_.front());
    messages_.pop_front();
    return message;
}

std::optional<ServerReport> Mailbox::take_report() {
    std::unique_lock lock(mutex_);
    while (!is_closed_) {
        const TimePoint now = std::chrono::steady_clock::now();
        if (!unsent_) {
            changed_.wait(lock);  // Ends with the stream, which keep-alive bounds.
        } else if (unsent_->phase == ServerPhase::kLoading && now < next_progress_) {
            changed_.wait_until(lock, next_progress_);
        } else {
            next_progress_ = now + kProgressInterval;
            return std::exchange(unsent_, std::nullopt);
        }
    }
    return std::nullopt;
}

void Mailbox::wait_closed(Nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return is_closed_; });
}

std::optional<ServerReport> Mailbox::last_report() const {
    const std::lock_guard lock(mutex_);
    return last_;
}

}  // namespace k3pod::control

#include "engine/front_desk.h"

#include <fmt/format.h>

#include <algorithm>

#include "k3pod/base/log.h"

namespace k3pod {

FrontDesk::FrontDesk(const SchedulerLimits& limits, const Clock& clock, EngineMetrics& metrics)
    : limits_(limits), clock_(clock), metrics_(metrics) {}

Result<RequestHandle> FrontDesk::submit(GenerationRequest request,
                                        std::shared_ptr<GenerationSink> sink) {
    const TimePoint now = clock_.now();
    if (request.arrival == TimePoint{}) request.arrival = now;
    const std::lock_guard lock(mutex_);
    if (!accepts_) return unavailable(reason_);
    K3POD_TRY(check_room(limits_, num_running_, num_waiting_));
    if (num_running_ + num_waiting_ == 0) last_progress_ = now;
    ++num_open_;
    ++num_waiting_;
    publish_counts_locked();
    commands_.push_back(SubmitCommand{++last_handle_, std::move(request), std::move(sink), now});
    asked_.notify_one();
    return last_handle_;
}

void FrontDesk::give(Command command) {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
    asked_.notify_one();
}

void FrontDesk::cancel(RequestHandle handle) {
    give(CancelCommand{handle});
}

void FrontDesk::fail_all(const Status& why) {
    give(FailAllCommand{why});
}

void FrontDesk::set_accepting(bool accepts, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    const bool is_news = accepts != accepts_;  // Whoever closes the door tells why it stays closed.
    accepts_ = accepts;
    reason_ = reason;
    if (!accepts) {
        commands_.push_back(FailWaitingCommand{unavailable(reason)});
        asked_.notify_one();
    }
    if (is_news) log::info(accepts ? "accepts requests" : "accepts no requests: " + reason);
}

void FrontDesk::close(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    accepts_ = false;
    reason_ = reason;
}

bool FrontDesk::wait_empty(TimePoint deadline) {
    // Short waits, because a test's clock does not wake anybody.
    constexpr auto kLook = std::chrono::milliseconds(5);
    std::unique_lock lock(mutex_);
    while (num_open_ > 0) {
        if (clock_.now() >= deadline) return false;
        emptied_.wait_for(lock, kLook);
    }
    return true;
}

void FrontDesk::wait_empty() {
    std::unique_lock lock(mutex_);
    emptied_.wait(lock, [this] { return num_open_ == 0; });
}

int32_t FrontDesk::num_failed() const {
    const std::lock_guard lock(mutex_);
    return num_failed_;
}

ServiceState FrontDesk::state() const {
    const TimePoint now = clock_.now();
    const std::lock_guard lock(mutex_);
    ServiceState state;
    state.accepts = accepts_;
    state.reason = reason_;
    state.num_running = num_running_;
    state.num_waiting = num_waiting_;
    state.num_generated_tokens = num_generated_tokens_;
    // The step thread may have moved on since `now` was read.
    if (num_running_ + num_waiting_ > 0) {
        state.seconds_since_progress = std::max(0.0, to_seconds(now - last_progress_));
    }
    return state;
}

void FrontDesk::stop() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    accepts_ = false;
    is_stopped_ = true;
    asked_.notify_one();
}

bool FrontDesk::take(std::vector<Command>& commands, bool is_idle) {
    commands.clear();
    std::unique_lock lock(mutex_);
    if (is_idle) asked_.wait(lock, [this] { return !commands_.empty() || is_stopped_; });
    commands.swap(commands_);
    return !is_stopped_;
}

void FrontDesk::note_admitted() {
    const std::lock_guard lock(mutex_);
    --num_waiting_;
    ++num_running_;
    publish_counts_locked();
}

void FrontDesk::note_left(bool was_running) {
    const std::lock_guard lock(mutex_);
    --(was_running ? num_running_ : num_waiting_);
    publish_counts_locked();
}

void FrontDesk::note_closed() {
    const std::lock_guard lock(mutex_);
    if (--num_open_ == 0) emptied_.notify_all();
}

void FrontDesk::note_failed(int32_t count) {
    const std::lock_guard lock(mutex_);
    num_failed_ += count;
}

void FrontDesk::note_progress(int32_t num_tokens) {
    const TimePoint now = clock_.now();
    const std::lock_guard lock(mutex_);
    last_progress_ = now;
    num_generated_tokens_ += num_tokens;
}

void FrontDesk::publish_counts_locked() {
    metrics_.set_requests(num_running_, num_waiting_);
}

}  // namespace k3pod

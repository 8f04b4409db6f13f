#pragma once
// What meets in one session of the server: messages from the stream's reader, reports from the
// loader, and the end, from wherever it comes. Outlives the stream, so that a late report finds
// something to land in.

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "control.pb.h"
#include "k3pod/base/clock.h"
#include "k3pod/control/control.h"

namespace k3pod::control {

// Any thread, but take_message and take_report are for the session's own.
class Mailbox {
  public:
    void put_message(v1::StationMessage message);
    // Replaces a report that is not sent yet.
    void put_report(const ServerReport& report);
    // Nothing is delivered any more.
    void close();

    // Waits for a message; nothing after `timeout` or close().
    std::optional<v1::StationMessage> take_message(Nanoseconds timeout);
    // Waits for a report that may go out now (progress at most ten times a second); nothing after
    // close().
    std::optional<ServerReport> take_report();
    // Waits for close() up to `timeout`.
    void wait_closed(Nanoseconds timeout);

    // The report put last; nothing before the first.
    std::optional<ServerReport> last_report() const;

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<v1::StationMessage> messages_;
    std::optional<ServerReport> unsent_, last_;
    TimePoint next_progress_{};  // Progress waits until here.
    bool is_closed_ = false;
};

}  // namespace k3pod::control

#pragma once
// Both ends' users of the control plane for tests: they note what they are told, and a test waits
// for it with a deadline.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "k3pod/control/control.h"

namespace k3pod::testing {

inline constexpr std::chrono::seconds kControlPatience{10};

// The expert server's side.
class RecordingHandler final : public ControlHandler {
  public:
    Status on_hello(const NodeIdentity& station) override {
        const std::lock_guard lock(mutex_);
        events_.push_back("hello " + station.node);
        changed_.notify_all();
        return welcome_;
    }
    void on_assignment(const Assignment& assignment,
                       std::function<void(const ServerReport&)> report) override {
        const std::lock_guard lock(mutex_);
        assignments_.push_back(assignment);
        report_ = std::move(report);
        events_.push_back("assignment");
        changed_.notify_all();
    }
    void on_session_end(uint64_t session) override {
        const std::lock_guard lock(mutex_);
        ended_.push_back(session);
        events_.push_back("end");
        changed_.notify_all();
    }
    void on_status(NodeStatus& status) override {
        status.num_frames = 42;
        status.shard_bytes = 1234;
    }
    std::vector<CheckLine> on_check() override {
        return {{"swap", Verdict::kWarning, "1 GiB \xff", "none", "swapoff -a"},
                {"memory", Verdict::kOk, "8 GiB", "4 GiB", ""}};
    }

    void set_welcome(const Status& welcome) {
        const std::lock_guard lock(mutex_);
        welcome_ = welcome;
    }
    // The last assignment once there are `count`; the test fails by session 0.
    Assignment wait_for_assignment(size_t count = 1) {
        std::unique_lock lock(mutex_);
        const bool is_there =
            changed_.wait_for(lock, kControlPatience, [&] { return assignments_.size() >= count; });
        return is_there ? assignments_.back() : Assignment{};
    }
    bool wait_for_ends(size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kControlPatience, [&] { return ended_.size() >= count; });
    }
    void report(const ServerReport& report) {
        std::function<void(const ServerReport&)> send;
        {
            const std::lock_guard lock(mutex_);
            send = report_;
        }
        send(report);
    }
    std::vector<uint64_t> ended() const {
        const std::lock_guard lock(mutex_);
        return ended_;
    }
    std::vector<std::string> events() const {
        const std::lock_guard lock(mutex_);
        return events_;
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    Status welcome_;
    std::vector<Assignment> assignments_;
    std::vector<uint64_t> ended_;
    std::vector<std::string> events_;
    std::function<void(const ServerReport&)> report_;
};

// The station's side.
class RecordingEvents final : public ControlEvents {
  public:
    void on_waiting(const std::string&, const Status& why) override {
        note([&] { waiting_.push_back(why); });
    }
    void on_connected(const std::string&, const NodeIdentity& server) override {
        note([&] { connected_.push_back(server); });
    }
    void on_report(const std::string&, uint64_t session, const ServerReport& report) override {
        note([&] { reports_.emplace_back(session, report); });
    }
    void on_lost(const std::string&, const Status& why) override {
        note([&] { lost_.push_back(why); });
    }

    // Each waits until there are `count` and gives the last; a test fails by an ok Status, an empty
    // node name, or a session 0.
    Status wait_for_waiting(size_t count = 1) { return wait_for(waiting_, count); }
    NodeIdentity wait_for_connected(size_t count = 1) { return wait_for(connected_, count); }
    Status wait_for_lost(size_t count = 1) { return wait_for(lost_, count); }
    std::pair<uint64_t, ServerReport> wait_for_phase(ServerPhase phase) {
        std::unique_lock lock(mutex_);
        const auto is_last = [&] {
            return !reports_.empty() && reports_.back().second.phase == phase;
        };
        if (!changed_.wait_for(lock, kControlPatience, is_last)) return {};
        return reports_.back();
    }
    std::vector<std::pair<uint64_t, ServerReport>> reports() const {
        const std::lock_guard lock(mutex_);
        return reports_;
    }
    size_t num_waiting() const {
        const std::lock_guard lock(mutex_);
        return waiting_.size();
    }

  private:
    template <class Change>
    void note(Change change) {
        const std::lock_guard lock(mutex_);
        change();
        changed_.notify_all();
    }
    template <class T>
    T wait_for(const std::vector<T>& list, size_t count) {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, kControlPatience, [&] { return list.size() >= count; })) {
            return T{};
        }
        return list.back();
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Status> waiting_, lost_;
    std::vector<NodeIdentity> connected_;
    std::vector<std::pair<uint64_t, ServerReport>> reports_;
};

inline NodeIdentity test_identity(const std::string& node, uint64_t process_id) {
    return {.node = node,
            .build_id = "build-a",
            .control_version = kControlVersion,
            .wire_version = 1,
            .transport = "loopback",
            .ucx_version = "1.13.1 (/usr/lib/libucp.so.0)",
            .model_fingerprint = 0x1234,
            .process_id = process_id};
}

inline Assignment test_assignment() {
    Assignment assignment;
    assignment.epoch = 3;
    assignment.node_index = 1;
    assignment.max_rows = 16;
    assignment.shards = {{.layer = 1, .expert = 2, .begin = 0, .end = 128},
                         {.layer = 1, .expert = 7, .begin = 32, .end = 64}};
    assignment.station_address = {std::byte{9}, std::byte{8}};
    return assignment;
}

inline std::string loopback_address(const ControlServer& server) {
    return "127.0.0.1:" + std::to_string(server.port());
}

}  // namespace k3pod::testing

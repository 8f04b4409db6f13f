#include "pod_supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "k3pod/base/log.h"

namespace k3pod {
namespace {

constexpr auto kReminderInterval = std::chrono::seconds(10);

// Faults of the node's own files: waiting does not mend them.
bool is_damaged_input(const Status& why) {
    return why.code() == Code::kDataLoss || why.code() == Code::kNotFound ||
           why.code() == Code::kInvalidArgument;
}

// Reasons begin with the node, which /health names in front of them.
std::string without_name(const std::string& reason, const std::string& node) {
    const std::string name = node + " ";
    return reason.starts_with(name) ? reason.substr(name.size()) : reason;
}

}  // namespace

PodSupervisor::PodSupervisor(const PodConfig& pod, MetricsRegistry& metrics, ProgressBoard& board,
                             Fatal fatal)
    : pod_(pod),
      board_(board),
      fatal_(std::move(fatal)),
      pod_ready_(metrics.gauge("k3pod_pod_ready", "1 while every expert shard is served")) {
    for (const ExpertConfig& expert : pod.experts) {
        Node& node = nodes_[expert.name];
        node.address = expert.control;
        node.ready =
            &metrics.gauge("k3pod_pod_node_ready", "1 while this expert server is attached",
                           {{"node", expert.name}});
        node.ready->set(0);
        const auto gauge = [&](const char* name, const char* help) {
            return &metrics.gauge(name, help, {{"node", expert.name}});
        };
        node.loaded_bytes = gauge("k3pod_pod_node_loaded_bytes", "Bytes of its shards loaded");
        node.remaining_bytes =
            gauge("k3pod_pod_node_remaining_bytes", "Bytes of its shards still to be loaded");
        node.load_rate = gauge("k3pod_pod_node_load_bytes_per_second",
                               "Mean rate of the load since it began; 0 when none runs");
    }
    pod_ready_.set(0);
}

PodSupervisor::~PodSupervisor() {
    stop();
}

void PodSupervisor::start(const NodeIdentity& self, const Placement& placement, int32_t max_rows,
                          ExchangeClient& exchange, Engine& engine, Stager* stager) {
    exchange_ = &exchange;
    engine_ = &engine;
    stager_ = stager;
    thread_ = std::thread([this] { run(); });
    for (size_t holder = 0; holder < placement.holders.size(); ++holder) {
        const auto node = nodes_.find(placement.holders[holder]);
        if (node == nodes_.end()) continue;  // the station's own tier
        Assignment assignment;
        assignment.epoch = placement.epoch;
        assignment.node_index = static_cast<uint16_t>(holder);
        assignment.max_rows = max_rows;
        assignment.shards = placement.shards_of(static_cast<int32_t>(holder));
        assignment.station_address = exchange.local_address();
        if (stager != nullptr) assignment.staging = stager->offer(node->first, assignment.shards);
        node->second.link = ControlLink::start(node->second.address, node->first, self,
                                               std::move(assignment), *this);
    }
    post([this] { update_door(); });
}

void PodSupervisor::stop() {
    {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
        stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
    for (auto& [name, node] : nodes_) node.link.reset();
}

void PodSupervisor::post(std::function<void()> event) {
    {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
        events_.push_back(std::move(event));
    }
    wake_.notify_all();
}

void PodSupervisor::run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        const bool woken =
            wake_.wait_until(lock, next_look(), [this] { return stopping_ || !events_.empty(); });
        if (!woken && !is_ready_) {
            log::info(reason());
            lock.unlock();
            update_door();
            lock.lock();
        }
        while (!stopping_ && !events_.empty()) {
            const std::function<void()> event = std::move(events_.front());
            events_.pop_front();
            lock.unlock();
            event();
            lock.lock();
        }
    }
}

void PodSupervisor::on_data_plane_down(const std::string& node, const Status& why) {
    post([this, node, why] {
        if (nodes_[node].link) nodes_[node].link->reconnect(why);
        handle_lost(node, why);
    });
}

void PodSupervisor::on_staging_failed(const std::string& node, const Status& why) {
    post([this, node, why] {
        if (nodes_[node].link) nodes_[node].link->reconnect(why);
        handle_lost(node, why);
        if (is_damaged_input(why)) fail_start(node, why);
    });
}

void PodSupervisor::on_waiting(const std::string& node, const Status& why) {
    post([this, node, why] {
        log::info("waiting: " + why.message());  // The reason names the node.
        nodes_[node].state = without_name(why.message(), node);
        if (is_damaged_input(why)) fail_start(node, why);
        update_door();
    });
}

void PodSupervisor::on_connected(const std::string& node, const NodeIdentity& server) {
    post([this, node, build = server.build_id] {
        log::info(fmt::format("{} connected (build {})", node, build));
        nodes_[node].state = "connected";
        nodes_[node].is_lost = false;
    });
}

void PodSupervisor::on_report(const std::string& node, uint64_t session,
                              const ServerReport& report) {
    post([this, node, session, report] { handle_report(node, session, report); });
}

void PodSupervisor::on_lost(const std::string& node, const Status& why) {
    post([this, node, why] { handle_lost(node, why); });
}

void PodSupervisor::handle_report(const std::string& node, uint64_t session,
                                  const ServerReport& report) {
    Node& entry = nodes_[node];
    switch (report.phase) {
        case ServerPhase::kLoading:
            handle_progress(node, report);
            if (stager_ != nullptr && !report.data_address.empty()) {
                stager_->attach(node, report.data_address, session);
            }
            break;
        case ServerPhase::kReady: {
            if (stager_ != nullptr) stager_->complete(node);
            entry.rate = {};
            entry.load_rate->set(0);
            entry.remaining_bytes->set(0);
            const Status attached = exchange_->attach(node, report.data_address, session);
            entry.state = attached.is_ok() ? "ready" : attached.message();
            entry.ready->set(attached.is_ok() ? 1 : 0);
            if (attached.is_ok()) {
                log::info(fmt::format("{} is ready", node));
            } else {
                log::warning(fmt::format("{} cannot be attached: {}", node, attached.message()));
                entry.link->reconnect(attached);
            }
            break;
        }
        case ServerPhase::kDraining:
            handle_lost(node, unavailable(node + " is draining"));
            break;
        case ServerPhase::kFailed:
            handle_lost(node, data_loss(report.message));
            fail_start(node, data_loss(report.message));
            break;
    }
    update_door();
}

void PodSupervisor::handle_progress(const std::string& node, const ServerReport& report) {
    Node& entry = nodes_[node];
    entry.rate.update(report.loaded_bytes, report.total_bytes);
    entry.state = fmt::format("loading, {} of {} bytes", report.loaded_bytes, report.total_bytes);
    entry.loaded_bytes->set(static_cast<double>(report.loaded_bytes));
    entry.remaining_bytes->set(static_cast<double>(report.total_bytes - report.loaded_bytes));
    entry.load_rate->set(entry.rate.bytes_per_s());
    board_.update(node, report.loaded_bytes, report.total_bytes);
}

// One loss has several witnesses (its own word, the control stream, the data plane); the first to
// speak knows most.
void PodSupervisor::handle_lost(const std::string& node, const Status& why) {
    Node& entry = nodes_[node];
    if (!std::exchange(entry.is_lost, true)) {
        entry.state = without_name(why.message(), node);
        log::warning("lost: " + why.message());
    }
    entry.ready->set(0);
    entry.rate = {};
    entry.load_rate->set(0);
    if (stager_ != nullptr) stager_->detach(node);
    exchange_->detach(node, why);
    update_door();
}

void PodSupervisor::fail_start(const std::string& node, const Status& why) {
    if (!was_ready_) fatal_(why.message().starts_with(node) ? why : why.with_context(node));
}

void PodSupervisor::update_door() {
    const bool ready = exchange_->missing().empty();
    if (ready && !is_ready_) {
        board_.finish();
        log::info(fmt::format("pod {} is ready: http://{}/v1 serves {}", pod_.name,
                              pod_.station.listen, pod_.station.served_model_name));
    }
    if (is_ready_ && !ready) incomplete_since_ = clock_.now();
    is_ready_ = ready;
    was_ready_ = was_ready_ || ready;
    pod_ready_.set(ready ? 1 : 0);
    is_open_ = ready || is_patient();
    engine_->set_accepting(is_open_, ready ? "" : reason());
}

// Whether what was lost may still come back in time for those who wait.
bool PodSupervisor::is_patient() const {
    return was_ready_ && clock_.now() - incomplete_since_ < pod_.exchange.hold_timeout;
}

// A reminder of who is missing, or the end of patience.
TimePoint PodSupervisor::next_look() const {
    const TimePoint reminder = clock_.now() + kReminderInterval;
    const bool is_waiting = is_open_ && !is_ready_;
    return is_waiting ? std::min(reminder, incomplete_since_ + pod_.exchange.hold_timeout)
                      : reminder;
}

std::string PodSupervisor::reason() const {
    std::string nodes;
    for (const std::string& name : exchange_->missing()) {
        const auto node = nodes_.find(name);
        const std::string state = node == nodes_.end() ? "not in the pod file" : node->second.state;
        nodes += fmt::format("{}{} ({})", nodes.empty() ? "" : ", ", name, state);
    }
    return "waiting for " + (nodes.empty() ? "nobody" : nodes);
}

}  // namespace k3pod

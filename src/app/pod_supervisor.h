#pragma once
// The station's view of its expert servers: dials each, attaches the ready ones to the exchange,
// and opens the engine's door while every shard of the placement is served, or has been within the
// exchange's hold_timeout: so long steps are held and requests queue for a server that was lost.

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "k3pod/config/pod_config.h"
#include "k3pod/control/control.h"
#include "k3pod/engine/generation_service.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/metrics/metrics.h"
#include "k3pod/placement/placement.h"
#include "progress.h"
#include "stager.h"

namespace k3pod {

// All events are queued and handled in order on one thread of its own, so none of them blocks the
// control links or the exchange, and none races another.
class PodSupervisor final : public ControlEvents {
  public:
    // Called when the pod cannot start: a node's checkpoint is damaged, before the pod was ever
    // ready.
    using Fatal = std::function<void(const Status& why)>;

    PodSupervisor(const PodConfig& pod, MetricsRegistry& metrics, ProgressBoard& board,
                  Fatal fatal);
    ~PodSupervisor() override;

    // Dials every expert server of the pod file. Borrowed: all outlive stop(). stager: null when
    // each node reads its own checkpoint.
    void start(const NodeIdentity& self, const Placement& placement, int32_t max_rows,
               ExchangeClient& exchange, Engine& engine, Stager* stager);
    // Ends the links. No event is handled afterwards.
    void stop();
    // The data plane saw a node fail. Any thread.
    void on_data_plane_down(const std::string& node, const Status& why);
    // Shards cannot be brought to a node. Any thread.
    void on_staging_failed(const std::string& node, const Status& why);

    void on_waiting(const std::string& node, const Status& why) override;
    void on_connected(const std::string& node, const NodeIdentity& server) override;
    void on_report(const std::string& node, uint64_t session, const ServerReport& report) override;
    void on_lost(const std::string& node, const Status& why) override;

  private:
    struct Node {
        std::string address;
        std::string state = "not connected yet";  // for /health, behind the node's name
        bool is_lost = false;                     // since it was connected last
        std::unique_ptr<ControlLink> link;
        Gauge* ready = nullptr;
        Gauge *loaded_bytes = nullptr, *remaining_bytes = nullptr, *load_rate = nullptr;
        LoadRate rate;
    };

    void post(std::function<void()> event);
    void run();
    void handle_report(const std::string& node, uint64_t session, const ServerReport& report);
    void handle_progress(const std::string& node, const ServerReport& report);
    void handle_lost(const std::string& node, const Status& why);
    void fail_start(const std::string& node, const Status& why);
    void update_door();
    bool is_patient() const;
    TimePoint next_look() const;
    std::string reason() const;

    const PodConfig& pod_;
    ProgressBoard& board_;
    SteadyClock clock_;
    Fatal fatal_;
    Gauge& pod_ready_;
    ExchangeClient* exchange_ = nullptr;
    Engine* engine_ = nullptr;
    Stager* stager_ = nullptr;
    std::map<std::string, Node> nodes_;  // event thread only, after start()
    bool is_ready_ = false;
    bool was_ready_ = false;
    bool is_open_ = false;
    TimePoint incomplete_since_{};  // while it was ready before and is not now

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> events_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace k3pod

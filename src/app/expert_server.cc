// The expert server process: waits for a station, loads the shards it is given, answers frames.

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "commands.h"
#include "k3pod/api/http_server.h"
#include "k3pod/api/openai_api.h"
#include "k3pod/base/log.h"
#include "k3pod/control/control.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/experts/expert_tier.h"
#include "load_report.h"
#include "model_folder.h"
#include "pod_plan.h"
#include "progress.h"
#include "signals.h"

namespace k3pod {
namespace {

constexpr const char* kWaiting = "waiting for the station";

// Keeps the tier while a frame runs.
FrameWork frame_work(std::shared_ptr<ExpertTier> tier) {
    return
        [tier = std::move(tier)](int32_t layer, int32_t rows, std::span<const Bf16> latents,
                                 std::span<const wire::WireEntry> entries, std::span<float> out) {
            return tier->run(layer, rows, latents, entries, out);
        };
}

// Keeps the shards between sessions: a station that comes back with the same list finds them ready.
// Loading runs on a thread of its own; the last assignment wins.
class ShardLoader final : public ControlHandler {
  public:
    using Report = std::function<void(const ServerReport&)>;

    // `counted` is the format in which the pod file counts experts. Frames have at most max_rows
    // rows.
    ShardLoader(const ModelFolder& model, Release counted, const ExpertConfig& node,
                int32_t max_rows, ExchangeServer& exchange, MetricsRegistry& metrics,
                StopSignal& stop)
        : model_(model),
          counted_(counted),
          stop_(stop),
          node_(node),
          max_rows_(max_rows),
          exchange_(exchange),
          board_(STDERR_FILENO),
          residence_(metrics),
          thread_([this] { run(); }) {}

    ~ShardLoader() override {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }

    Status on_hello(const NodeIdentity& station) override {
        log::info(fmt::format("station connected (build {})", station.build_id));
        return Status::ok();
    }

    void on_assignment(const Assignment& assignment, Report report) override {
        const std::lock_guard lock(mutex_);
        assignment_ = assignment;
        report_ = std::move(report);
        is_pending_ = true;
        wake_.notify_all();
    }

    void on_session_end(uint64_t session) override {
        forget(session);  // first, so that a session that opens just now is closed by one of us
        exchange_.close_session(session);
    }

    void on_status(NodeStatus& status) override {
        status.shard_bytes = residence_.bytes();
        status.num_frames = exchange_.num_frames();
    }

    std::string phase() const {
        const std::lock_guard lock(mutex_);
        return phase_;
    }
    bool is_ready() const { return phase() == "ready"; }

  private:
    void run() {
        std::unique_lock lock(mutex_);
        while (true) {
            wake_.wait(lock, [this] { return stopping_ || is_pending_; });
            if (stopping_) return;
            is_pending_ = false;
            if (!assignment_) continue;
            const Assignment assignment = *assignment_;
            lock.unlock();
            serve(assignment);
            lock.lock();
        }
    }

    void serve(const Assignment& assignment) {
        // No session is open while shards load, so a signal has nothing to drain.
        stop_.set_phase(StopSignal::Phase::kStarting);
        Status status = load(assignment);
        if (!stop_.is_requested()) stop_.set_phase(StopSignal::Phase::kServing);
        if (status && is_current(assignment.session)) {
            status = exchange_.open_session(assignment, frame_work(tier_));
        }
        ServerReport report;
        if (!status) {
            log::error(status.message());
            report.phase = ServerPhase::kFailed;
            report.message = status.message();
            set_phase(status.message());
        } else if (set_ready(assignment.session)) {
            report.phase = ServerPhase::kReady;
            report.data_address = exchange_.local_address();
            log::info(fmt::format("ready: epoch {}, {}", assignment.epoch, describe_load(*tier_)));
        } else {
            // The session ended while its shards loaded, and nobody else closes one that was opened
            // after its end: it would look for its dead station for ever.
            exchange_.close_session(assignment.session);
            set_phase(kWaiting);
            return;
        }
        send(assignment.session, report);
    }

    Status load(const Assignment& assignment) {
        if (tier_ && shards_ == assignment.shards) return Status::ok();
        int64_t bytes = 0;
        for (const Shard& shard : assignment.shards) {
            bytes += expert_shard_bytes(model_.config, counted_, shard.end - shard.begin);
        }
        if (bytes > node_.budget_bytes()) {
            return invalid_argument(
                fmt::format("{} was given shards of {} bytes but its expert_budget is {}; raise it "
                            "or mend the placement",
                            node_.name, bytes, node_.budget_bytes()));
        }
        tier_.reset();  // Memory is the plan: the old shards go before the new ones come.
        set_phase("loading");
        const ExpertTierSource source{model_.checkpoint, model_.config, model_.release,
                                      assignment.shards};
        K3POD_ASSIGN(
            tier_,
            ExpertTier::load(node_.backend, source, max_rows_, [&](int64_t done, int64_t total) {
                board_.update(node_.name, done, total);
                send(assignment.session, {ServerPhase::kLoading, done, total, {}, {}});
            }));
        board_.finish();
        shards_ = assignment.shards;
        residence_.show(*tier_);
        return Status::ok();
    }

    void send(uint64_t session, const ServerReport& report) {
        Report to;
        {
            const std::lock_guard lock(mutex_);
            if (assignment_ && assignment_->session == session) to = report_;
        }
        if (to) to(report);
    }

    void set_phase(const std::string& phase) {
        const std::lock_guard lock(mutex_);
        phase_ = phase;
    }

    bool is_current(uint64_t session) const {
        const std::lock_guard lock(mutex_);
        return assignment_ && assignment_->session == session;
    }

    // False when the session has ended meanwhile.
    bool set_ready(uint64_t session) {
        const std::lock_guard lock(mutex_);
        if (!assignment_ || assignment_->session != session) return false;
        phase_ = "ready";
        return true;
    }

    void forget(uint64_t session) {
        const std::lock_guard lock(mutex_);
        if (!assignment_ || assignment_->session != session) return;
        log::info("the station's session ended; keeping the shards and waiting for it");
        assignment_.reset();
        report_ = nullptr;
        phase_ = kWaiting;
    }

    const ModelFolder& model_;
    const Release counted_;
    StopSignal& stop_;
    const ExpertConfig& node_;
    const int32_t max_rows_;
    ExchangeServer& exchange_;
    ProgressBoard board_;
    ExpertResidence residence_;
    std::shared_ptr<ExpertTier> tier_;  // loader thread only; shared with the frame in work
    std::vector<Shard> shards_;

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::optional<Assignment> assignment_;
    Report report_;
    std::string phase_ = kWaiting;
    bool is_pending_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

// When the model folder is damaged: tells the station why, so that it does not wait for ever.
class RefuseAll final : public ControlHandler {
  public:
    explicit RefuseAll(Status why) : why_(std::move(why)) {}
    Status on_hello(const NodeIdentity&) override {
        told_ = true;
        return why_;
    }
    void on_assignment(const Assignment&, std::function<void(const ServerReport&)>) override {}
    void on_session_end(uint64_t) override {}
    bool has_told() const { return told_; }

  private:
    const Status why_;
    std::atomic<bool> told_{false};
};

// Stays reachable for a short while with nothing but the refusal, then fails.
Status refuse_for_a_while(const ExpertConfig& node, NodeIdentity identity, const Status& why,
                          StopSignal& stop) {
    constexpr auto kLimit = std::chrono::seconds(20);
    log::error(why.message());
    stop.set_phase(StopSignal::Phase::kServing);  // A signal ends the wait, not the failure.
    RefuseAll handler(why);
    const auto server = ControlServer::start(node.control, identity, handler);
    const TimePoint end = SteadyClock().now() + kLimit;
    while (server.is_ok() && !handler.has_told() && !stop.is_requested() &&
           SteadyClock().now() < end) {
        stop.wait_for(std::chrono::milliseconds(100));
    }
    return why;
}

Result<std::unique_ptr<HttpServer>> start_http(const ExpertConfig& node, MetricsRegistry& metrics,
                                               const ShardLoader& loader,
                                               const ExchangeServer& exchange) {
    HttpServerOptions options;
    options.listen = node.http;
    options.num_workers = 1;
    auto server = HttpServer::start(
        options,
        make_node_handler(
            metrics,
            [&loader] { return loader.is_ready() ? Status::ok() : unavailable(loader.phase()); },
            [&node, &exchange] {
                return fmt::format(R"({{"node":"{}","frames":{}}})", node.name,
                                   exchange.num_frames());
            }));
    if (!server) return server.status().with_context(fmt::format("[[expert]] {} http", node.name));
    return server;
}

Status serve_node(const PodConfig& pod, const ExpertConfig& node, const ModelFolder& model,
                  StopSignal& stop) {
    SteadyClock clock;
    MetricsRegistry metrics;
    K3POD_ASSIGN(const auto exchange,
                 ExchangeServer::create(make_exchange_options(pod, model.config),
                                        make_transport_factory(pod, node.device), clock, metrics));
    ShardLoader loader(model, counted_release(pod, model.release), node,
                       pod.station.max_batch_tokens, *exchange, metrics, stop);
    K3POD_ASSIGN(const auto control,
                 ControlServer::start(node.control, make_identity(pod, model, node.name), loader));
    std::unique_ptr<HttpServer> http;
    if (!node.http.empty()) {
        K3POD_ASSIGN(http, start_http(node, metrics, loader, *exchange));
    }
    log::info(fmt::format("waiting for the station to dial {}", node.control));
    stop.set_phase(StopSignal::Phase::kServing);
    stop.wait();
    stop.set_phase(StopSignal::Phase::kDraining);
    log::info("draining");
    control->drain();
    return Status::ok();
}

}  // namespace

Status run_expert_server(const PodConfig& pod, const std::string& name) {
    StopSignal stop;
    const ExpertConfig* node = pod.find_expert(name);
    if (node == nullptr) {
        std::string known;
        for (const ExpertConfig& expert : pod.experts) known += " " + expert.name;
        return invalid_argument(
            fmt::format("--node {}: no [[expert]] of {} has that name; it has:{}", name,
                        pod.file.string(), known));
    }
    log::init(name, log::Level::kInfo);
    K3POD_TRY(check_node(name, node->backend, node->budget_bytes()));
    const auto model = open_model_folder(pod.model);
    if (!model) {
        NodeIdentity identity;
        identity.node = name;
        identity.build_id = build_id();
        return refuse_for_a_while(*node, identity, model.status(), stop);
    }
    return serve_node(pod, *node, *model, stop);
}

}  // namespace k3pod

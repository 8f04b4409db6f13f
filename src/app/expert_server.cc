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

#include "check_node.h"
#include "commands.h"
#include "k3pod/api/http_server.h"
#include "k3pod/api/openai_api.h"
#include "k3pod/base/log.h"
#include "k3pod/control/control.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/experts/expert_tier.h"
#include "load_report.h"
#include "model_folder.h"
#include "node_exchange.h"
#include "pod_plan.h"
#include "progress.h"
#include "signals.h"
#include "staged_tier.h"

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

    // One of model and staged is there: where the shards come from.
    ShardLoader(const PodConfig& pod, const ExpertConfig& node, const ModelFolder* model,
                StagedTier* staged, NodeExchange& exchange, MetricsRegistry& metrics,
                StopSignal& stop)
        : pod_(pod),
          node_(node),
          model_(model),
          staged_(staged),
          stop_(stop),
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
        const std::lock_guard lock(mutex_);
        status.load_bytes_per_s = rate_.bytes_per_s();
    }

    std::vector<CheckLine> on_check() override {
        return check_this_machine(pod_, node_.name, residence_.bytes(), GpuLoad::kNone);
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
        if (status.code() == Code::kCancelled) {
            return set_phase(kWaiting);  // What has arrived is kept for the next session.
        }
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
        const bool is_offered = !assignment.staging.address.empty();
        if (is_offered != (staged_ != nullptr)) {
            return failed_precondition(fmt::format(
                "{}: [staging] source is \"{}\" in this node's pod file and \"{}\" in the "
                "station's; give both the same pod file",
                node_.name, staged_ ? "station" : "local", is_offered ? "station" : "local"));
        }
        const bool is_same = shards_ == assignment.shards && stamps_ == assignment.staging.stamps;
        if (tier_ && is_same) return Status::ok();
        K3POD_TRY(is_offered ? receive(assignment) : read(assignment));
        board_.finish();
        shards_ = assignment.shards;
        stamps_ = assignment.staging.stamps;
        residence_.show(*tier_);
        return Status::ok();
    }

    Status check_budget(const Assignment& assignment, const ModelConfig& config, Release release) {
        const Release counted = counted_release(pod_, release);
        int64_t bytes = 0;
        for (const Shard& shard : assignment.shards) {
            bytes += expert_shard_bytes(config, counted, shard.end - shard.begin);
        }
        if (bytes > node_.budget_bytes()) {
            return invalid_argument(
                fmt::format("{} was given shards of {} bytes but its expert_budget is {}; raise it "
                            "or mend the placement",
                            node_.name, bytes, node_.budget_bytes()));
        }
        return Status::ok();
    }

    // From this node's own checkpoint.
    Status read(const Assignment& assignment) {
        K3POD_TRY(check_budget(assignment, model_->config, model_->release));
        drop_tier();
        const ExpertTierSource source{model_->checkpoint, model_->config, model_->release,
                                      assignment.shards};
        K3POD_ASSIGN(tier_,
                     ExpertTier::load(
                         node_.backend, source, pod_.station.max_batch_tokens,
                         [&](int64_t done, int64_t total) {
                             tell(assignment.session, {ServerPhase::kLoading, done, total, {}, {}});
                         }));
        return Status::ok();
    }

    // From the station.
    Status receive(const Assignment& assignment) {
        const StagingOffer& offer = assignment.staging;
        Result<ModelConfig> config = parse_model_config(offer.model_config);
        if (!config) return config.status().with_context("the station's config.json");
        K3POD_TRY(check_budget(assignment, *config, static_cast<Release>(offer.release)));
        K3POD_TRY(exchange_.prepare(*config));
        drop_tier();
        const StagedTier::Watcher watcher{
            .report =
                [&](const ServerReport& report) {
                    if (!report.data_address.empty()) tell(assignment.session, report);
                },
            .goes_on = [&] { return is_current(assignment.session); }};
        K3POD_ASSIGN(tier_, staged_->load(assignment, *config, watcher));
        return Status::ok();
    }

    // Memory is the plan: the old shards go before the new ones come.
    void drop_tier() {
        tier_.reset();
        set_phase("loading");
    }

    void tell(uint64_t session, const ServerReport& report) {
        board_.update(node_.name, report.loaded_bytes, report.total_bytes);
        {
            const std::lock_guard lock(mutex_);
            rate_.update(report.loaded_bytes, report.total_bytes);
        }
        send(session, report);
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
        return !stopping_ && assignment_ && assignment_->session == session;
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

    const PodConfig& pod_;
    const ExpertConfig& node_;
    const ModelFolder* model_;
    StagedTier* staged_;
    StopSignal& stop_;
    NodeExchange& exchange_;
    ProgressBoard board_;
    ExpertResidence residence_;
    std::shared_ptr<ExpertTier> tier_;  // loader thread only; shared with the frame in work
    std::vector<Shard> shards_;         // of the tier
    std::vector<uint64_t> stamps_;      // likewise, of staged ones

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::optional<Assignment> assignment_;
    Report report_;
    std::string phase_ = kWaiting;
    LoadRate rate_;  // of the last load
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
                                               const NodeExchange& exchange) {
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

// `model` is null on a node that gets its shards from the station.
Status serve_node(const PodConfig& pod, const ExpertConfig& node, const ModelFolder* model,
                  StopSignal& stop) {
    SteadyClock clock;
    MetricsRegistry metrics;
    NodeExchange exchange(pod, node, clock, metrics);
    std::unique_ptr<StagedTier> staged;
    if (model != nullptr) {
        K3POD_TRY(exchange.prepare(model->config));
    } else {
        K3POD_ASSIGN(staged, StagedTier::create(pod, node, clock, metrics));
    }
    ShardLoader loader(pod, node, model, staged.get(), exchange, metrics, stop);
    const uint64_t fingerprint = model != nullptr ? model->fingerprint : 0;
    K3POD_ASSIGN(
        const auto control,
        ControlServer::start(node.control, make_identity(pod, fingerprint, node.name), loader));
    std::unique_ptr<HttpServer> http;
    if (!node.http.empty()) {
        K3POD_ASSIGN(http, start_http(node, metrics, loader, exchange));
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
    if (node == nullptr) return pod.no_such_expert(name).with_context("--node");
    log::init(name, log::Level::kInfo);
    K3POD_TRY(check_node(name, node->backend, node->budget_bytes()));
    if (pod.staging.source == ShardOrigin::kStation) {
        return serve_node(pod, *node, nullptr, stop);
    }
    const auto model = open_model_folder(pod.model);
    if (!model) {
        NodeIdentity identity;
        identity.node = name;
        identity.build_id = build_id();
        return refuse_for_a_while(*node, identity, model.status(), stop);
    }
    return serve_node(pod, *node, &*model, stop);
}

}  // namespace k3pod

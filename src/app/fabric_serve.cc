// k3pod fabric serve: a node's end of the measurements of k3pod fabric link and hop.

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "fabric_commands.h"
#include "k3pod/base/log.h"
#include "k3pod/control/control.h"
#include "k3pod/exchange/probe.h"
#include "k3pod/experts/expert_tier.h"
#include "k3pod/fabric/link.h"
#include "measuring_session.h"
#include "model_folder.h"
#include "signals.h"

namespace k3pod {
namespace {

using Report = std::function<void(const ServerReport&)>;

class MeasuredEnd final : public ControlHandler {
  public:
    static Result<std::unique_ptr<MeasuredEnd>> create(const PodConfig& pod,
                                                       const ExpertConfig& node) {
        auto end = std::make_unique<MeasuredEnd>(pod, node);
        K3POD_ASSIGN(const ModelConfig config, measured_model(pod));
        K3POD_ASSIGN(end->exchange_, ProbeServer::create(probe_options(pod, config),
                                                         make_transport_factory(pod, node.device)));
        for (const std::string& rail : rails_of(node.device, node.rails)) {
            K3POD_ASSIGN(auto link, LinkEnd::create(make_transport_factory(pod, rail)));
            end->rails_.push_back(std::move(link));
        }
        return end;
    }

    MeasuredEnd(const PodConfig& pod, const ExpertConfig& node) : pod_(pod), node_(node) {}
    ~MeasuredEnd() override { join(); }

    Status on_hello(const NodeIdentity&) override { return Status::ok(); }
    void on_assignment(const Assignment& assignment, Report report) override {
        join();
        loader_ = std::thread([this, assignment, report = std::move(report)] {
            const Status status = prepare(assignment);
            if (status) return report({.phase = ServerPhase::kReady, .data_address = addresses()});
            log::error(status.message());
            report({.phase = ServerPhase::kFailed, .message = status.message()});
        });
    }
    void on_session_end(uint64_t session) override {
        join();
        exchange_->close_session(session);
        log::info("the measurement is over");
    }

  private:
    // Loads what is to be worked on, and connects to the station's ends.
    Status prepare(Assignment assignment) {
        K3POD_ASSIGN(const auto station, unpack_addresses(assignment.station_address));
        if (station.empty() || station.size() > rails_.size() + 1) {
            return invalid_argument(
                fmt::format("the station has {} rails, {} has {}; give both as "
                            "many in the pod file",
                            station.size() - 1, node_.name, rails_.size()));
        }
        for (size_t i = 1; i < station.size(); ++i) K3POD_TRY(rails_[i - 1]->connect(station[i]));
        FrameWork work;
        if (!assignment.shards.empty()) {
            K3POD_ASSIGN(work, expert_work(assignment.shards));
        }
        assignment.station_address = station.front();
        log::info(fmt::format("measuring, {} shards loaded", assignment.shards.size()));
        if (station.front().empty()) return Status::ok();
        return exchange_->open_session(assignment, std::move(work));
    }

    Result<FrameWork> expert_work(const std::vector<Shard>& shards) {
        K3POD_ASSIGN(const ModelFolder model, open_model_folder(pod_.model));
        const ExpertTierSource source{model.checkpoint, model.config, model.release, shards};
        K3POD_ASSIGN(auto loaded,
                     ExpertTier::load(node_.backend, source, kMostProbeRows, LoadProgress()));
        return FrameWork([tier = std::shared_ptr<ExpertTier>(std::move(loaded))](
                             int32_t layer, int32_t rows, std::span<const Bf16> latents,
                             std::span<const wire::WireEntry> entries, std::span<float> out) {
            return tier->run(layer, rows, latents, entries, out);
        });
    }

    Address addresses() const {
        std::vector<Address> all{exchange_->local_address()};
        for (const auto& rail : rails_) all.push_back(rail->local_address());
        return pack_addresses(all);
    }

    void join() {
        if (loader_.joinable()) loader_.join();
    }

    const PodConfig& pod_;
    const ExpertConfig& node_;
    std::unique_ptr<ProbeServer> exchange_;
    std::vector<std::unique_ptr<LinkEnd>> rails_;
    std::thread loader_;
};

}  // namespace

Status run_fabric_serve(const PodConfig& pod, const std::string& name) {
    StopSignal stop;
    const ExpertConfig* node = pod.find_expert(name);
    if (node == nullptr) {
        return invalid_argument(
            fmt::format("--node {}: no [[expert]] of {} has that name", name, pod.file.string()));
    }
    log::init(name, log::Level::kInfo);
    K3POD_ASSIGN(const auto end, MeasuredEnd::create(pod, *node));
    K3POD_ASSIGN(const auto control,
                 ControlServer::start(node->control, measuring_identity(pod, name), *end));
    log::info(fmt::format("waiting at {} for k3pod fabric link or hop", node->control));
    stop.set_phase(StopSignal::Phase::kServing);
    stop.wait();
    control->drain();
    return Status::ok();
}

}  // namespace k3pod

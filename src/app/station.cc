// The station process: from the pod file to a served endpoint, and back down.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "commands.h"
#include "door.h"
#include "k3pod/api/http_server.h"
#include "k3pod/api/openai_api.h"
#include "k3pod/base/log.h"
#include "k3pod/engine/generation_service.h"
#include "k3pod/experts/expert_tier.h"
#include "k3pod/model/cuda_model.h"
#include "k3pod/model/model.h"
#include "k3pod/state/state_store.h"
#include "load_report.h"
#include "model_folder.h"
#include "pick_counter.h"
#include "pod_plan.h"
#include "pod_supervisor.h"
#include "progress.h"
#include "signals.h"
#include "stager.h"
#include "text_files.h"

namespace k3pod {
namespace {

void warn_of_small_cache(const PodConfig& pod, const Capacity& capacity) {
    log::warning(
        fmt::format("[station] kv_tokens {} is below max_model_len: prompt and output of "
                    "a request may have {} tokens together, all that the cache holds",
                    pod.station.kv_tokens, capacity.max_model_len));
}

// Allocating more than there is would end the process without a word.
Status check_state_fits(const StateShape& shape) {
    const int64_t needed = StateStore::bytes(shape), physical = physical_memory_bytes();
    if (needed <= physical) return Status::ok();
    return invalid_argument(fmt::format(
        "[station] max_num_seqs ({} slots) and kv_tokens ({} pages of {} tokens) need {} bytes but "
        "this machine has {} bytes of memory; lower them in the pod file",
        shape.num_slots, shape.num_pages, kPageTokens, needed, physical));
}

EngineOptions make_engine_options(const PodConfig& pod, const Capacity& capacity) {
    EngineOptions options;
    options.model_name = pod.station.served_model_name;
    options.default_max_tokens = pod.station.default_max_tokens;
    options.limits.max_num_seqs = pod.station.max_num_seqs;
    options.limits.num_pages = capacity.num_pages;
    options.limits.page_tokens = kPageTokens;
    options.limits.max_batch_tokens = pod.station.max_batch_tokens;
    options.limits.queue_limit = pod.station.queue_limit;
    options.limits.max_model_len = capacity.max_model_len;
    options.limits.prefill_alignment = kPrefillAlignment;
    return options;
}

// The station's own tier of experts; null when the placement gives it none.
Result<std::unique_ptr<ExpertTier>> load_local_experts(const PodConfig& pod,
                                                       const ModelFolder& model,
                                                       const Placement& placement,
                                                       ProgressBoard& board,
                                                       MetricsRegistry& metrics) {
    const auto holder = std::ranges::find(placement.holders, "station");
    if (holder == placement.holders.end()) return std::unique_ptr<ExpertTier>();
    const std::vector<Shard> shards =
        placement.shards_of(static_cast<int32_t>(holder - placement.holders.begin()));
    const ExpertTierSource source{model.checkpoint, model.config, model.release, shards};
    K3POD_ASSIGN(auto tier,
                 ExpertTier::load(pod.station.backend, source, pod.station.max_batch_tokens,
                                  [&](int64_t done, int64_t total) {
                                      board.update("own experts", done, total);
                                  }));
    ExpertResidence(metrics).show(*tier);
    board.finish();
    log::info(fmt::format("own experts: {}", describe_load(*tier)));
    return tier;
}

FrameWork frame_work(ExpertTier* tier) {
    if (tier == nullptr) return {};
    return [tier](int32_t layer, int32_t rows, std::span<const Bf16> latents,
                  std::span<const wire::WireEntry> entries,
                  std::span<float> out) { return tier->run(layer, rows, latents, entries, out); };
}

// Everything a station consists of, built bottom up; members are destroyed top down.
class Station {
  public:
    Station(const PodConfig& pod, StopSignal& stop)
        : pod_(pod),
          stop_(stop),
          board_(STDERR_FILENO),
          supervisor_(pod, metrics_, board_, [this](const Status& why) { fail(why); }) {}

    Status run() {
        K3POD_TRY(listen());
        K3POD_TRY(open_folder());
        K3POD_TRY(load());
        K3POD_TRY(connect());
        K3POD_TRY(open_api());
        K3POD_TRY(open_staging());
        supervisor_.start(make_identity(pod_, model_->fingerprint, "station"), placement_,
                          pod_.station.max_batch_tokens, *exchange_, *engine_, stager_.get());
        stop_.set_phase(StopSignal::Phase::kServing);
        stop_.wait();
        return shut_down();
    }

  private:
    Status listen() {
        HttpServerOptions options;
        options.listen = pod_.station.listen;
        options.max_body_bytes = pod_.station.max_body_bytes;
        auto server = HttpServer::start(
            options, [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
                door_.handle(std::move(request), std::move(reply));
            });
        if (!server) return server.status().with_context("[station] listen");
        http_ = std::move(server).value();
        return Status::ok();
    }

    Status open_folder() {
        K3POD_ASSIGN(model_, open_model_folder(pod_.model));
        K3POD_ASSIGN(capacity_, size_capacity(pod_, model_->config));
        if (capacity_.is_cut_by_cache) warn_of_small_cache(pod_, capacity_);
        if (pod_.station.backend == Backend::kCpu) K3POD_TRY(check_state_fits(shape_of_state()));
        K3POD_ASSIGN(text_files_, read_text_files(pod_.model, model_->config));
        K3POD_ASSIGN(const Placement planned, make_placement(pod_, *model_));
        door_.show_placement(planned);
        if (!planned.replicas.empty()) {
            log::info(fmt::format("the placement has {} replicas, which this version leaves out",
                                  planned.replicas.size()));
        }
        placement_ = runtime_placement(planned);
        return Status::ok();
    }

    StateShape shape_of_state() const {
        return state_shape(model_->config, pod_.station.max_num_seqs, capacity_.num_pages);
    }

    Status load() {
        K3POD_ASSIGN(weights_, load_station_weights(model_->checkpoint, model_->config,
                                                    [this](int64_t done, int64_t total) {
                                                        board_.update("station", done, total);
                                                    }));
        K3POD_ASSIGN(local_, load_local_experts(pod_, *model_, placement_, board_, metrics_));
        board_.finish();
        const StateShape shape = shape_of_state();
        switch (pod_.station.backend) {
            case Backend::kCpu:
                return make_network_on_cpu(shape);
            case Backend::kCuda:
                return make_network_on_gpu(shape).with_context("[station] backend = \"cuda\"");
        }
        return Status::ok();
    }

    Status make_network_on_cpu(const StateShape& shape) {
        state_.emplace(shape);
        K3POD_ASSIGN(network_, Model::create(model_->config, *weights_, *state_,
                                             pod_.station.max_batch_tokens));
        return Status::ok();
    }

    Status make_network_on_gpu(const StateShape& shape) {
        K3POD_ASSIGN(std::unique_ptr<StateMemory> memory, make_cuda_state_memory(shape));
        state_.emplace(shape, std::move(memory));
        const CudaModelOptions options{.max_rows = pod_.station.max_batch_tokens,
                                       .max_context = capacity_.max_model_len,
                                       .write = {}};
        K3POD_ASSIGN(network_,
                     CudaModel::create(model_->config, std::move(*weights_), *state_, options));
        weights_.reset();
        return Status::ok();
    }

    Status connect() {
        K3POD_ASSIGN(exchange_,
                     ExchangeClient::create(make_exchange_options(pod_, model_->config), placement_,
                                            make_transport_factory(pod_, pod_.station_device),
                                            frame_work(local_.get()), clock_, metrics_,
                                            [this](const std::string& node, const Status& why) {
                                                supervisor_.on_data_plane_down(node, why);
                                            }));
        picks_.emplace(*exchange_, placement_, pod_.station.max_batch_tokens, model_->config.top_k);
        K3POD_ASSIGN(engine_,
                     Engine::create(make_engine_options(pod_, capacity_), *network_, *state_,
                                    *picks_, model_->config.vocab, clock_, metrics_));
        door_.show_trace([this] { return picks_->trace(); });
        return Status::ok();
    }

    Status open_api() {
        ApiOptions options;
        options.model_name = pod_.station.served_model_name;
        options.build_id = build_id();
        options.sse_keepalive = pod_.station.sse_keepalive;
        options.default_temperature = text_files_.defaults.temperature;
        options.default_top_p = text_files_.defaults.top_p;
        api_ = OpenAiApi::create(options, *engine_, *text_files_.tokenizer, text_files_.wording,
                                 clock_, metrics_);
        door_.open(*api_);
        return Status::ok();
    }

    Status open_staging() {
        if (pod_.staging.source != ShardOrigin::kStation) return Status::ok();
        K3POD_ASSIGN(stager_, Stager::create(pod_, *model_, clock_, metrics_,
                                             [this](const std::string& node, const Status& why) {
                                                 supervisor_.on_staging_failed(node, why);
                                             }));
        return Status::ok();
    }

    void fail(const Status& why) {
        {
            const std::lock_guard lock(failure_mutex_);
            failure_ = why;
        }
        stop_.request();
    }

    Status shut_down() {
        stop_.set_phase(StopSignal::Phase::kDraining);
        log::info(fmt::format(
            "draining: no new requests, running ones have {:.0f} s; a second signal ends at once",
            to_seconds(pod_.station.drain_timeout)));
        const int32_t failed = engine_->drain(pod_.station.drain_timeout);
        if (failed > 0)
            log::warning(fmt::format("{} requests were cut off by the drain limit", failed));
        http_.reset();
        supervisor_.stop();
        log::info("stopped");
        const std::lock_guard lock(failure_mutex_);
        return failure_;
    }

    const PodConfig& pod_;
    StopSignal& stop_;
    SteadyClock clock_;
    MetricsRegistry metrics_;
    ProgressBoard board_;
    std::mutex failure_mutex_;
    Status failure_;

    std::optional<ModelFolder> model_;
    Capacity capacity_;
    TextFiles text_files_;
    Placement placement_;  // as served: the station's tiers are one holder
    std::optional<StationWeights> weights_;
    std::unique_ptr<ExpertTier> local_;
    std::optional<StateStore> state_;
    std::unique_ptr<Model> network_;
    PodSupervisor supervisor_;
    std::unique_ptr<ExchangeClient> exchange_;
    std::optional<PickCounter> picks_;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<OpenAiApi> api_;
    std::unique_ptr<Stager> stager_;
    Door door_;
    std::unique_ptr<HttpServer> http_;
};

}  // namespace

Status run_station(const PodConfig& pod) {
    StopSignal stop;
    log::init("station", log::Level::kInfo);
    // Today's runtime keeps the tiers in one memory.
    const int64_t budget_bytes = pod.station.expert_budget_bytes + pod.station.hbm.budget_bytes() +
                                 pod.station.host.budget_bytes();
    K3POD_TRY(check_node("station", pod.station.backend, budget_bytes));
    const auto station = std::make_unique<Station>(pod, stop);
    return station->run();
}

}  // namespace k3pod

#include "tests/support/predict_agreement.h"

#include <sys/prctl.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "k3pod/placement/predict.h"
#include "tests/support/throttled_pod.h"
#include "tests/support/tiny_model.h"

namespace k3pod::testing {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int32_t kServers = 2;
constexpr int32_t kTokens = 6;  // of a measured run, one step each
constexpr double kExpertBytes = 3 * 128 * (64 + 4);
constexpr double kBytesPerSecond = kExpertBytes / 3e-3;  // an expert in 3 ms
constexpr std::chrono::microseconds kDelays[] = {
    std::chrono::microseconds(0), std::chrono::microseconds(500), std::chrono::microseconds(2000),
    std::chrono::microseconds(5000)};

double now_s() {
    return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void append(std::vector<double>& all, const std::vector<double>& more) {
    all.insert(all.end(), more.begin(), more.end());
}

// As fast as the fastest of `rounds`, of many figures.
double undisturbed(std::vector<double> values, int rounds) {
    std::ranges::sort(values);
    return values[values.size() / static_cast<size_t>(2 * rounds)];
}

// Layers as sums over a step, which is what is predicted.
std::vector<double> sums_of_steps(const std::vector<double>& layers, int32_t per_step) {
    std::vector<double> sums;
    for (auto at = layers.begin(); at != layers.end(); at += per_step) {
        sums.push_back(std::accumulate(at, at + per_step, 0.0));
    }
    return sums;
}

// Seconds of each decode step of one sequence. Any text does: decoding takes as long for every
// token.
Result<std::vector<double>> run_tokens(TinyModel& tiny, ExpertPort& port, uint64_t& step,
                                       ForwardProbe* probe = nullptr) {
    SequenceRun run(tiny, kTokens);
    std::vector<float> logits(static_cast<size_t>(tiny.config().vocab));
    std::vector<double> seconds;
    for (int32_t i = 0; i < kTokens; ++i) {
        const int32_t id = 11 + 131 * i;
        const SequenceChunk chunk = run.next(std::span(&id, 1), SequenceChunk::Logits::kLast);
        const double start = now_s();
        K3POD_TRY(tiny.model().forward({.step = ++step, .chunks = std::span(&chunk, 1)}, port,
                                       logits, probe));
        seconds.push_back(now_s() - start);
    }
    return seconds;
}

// Answers at once and times what the station does before and after.
class Stopwatch final : public ExpertPort {
  public:
    Status dispatch(const RoutedRows& /*rows*/) override {
        before_s.push_back(now_s() - last_);
        last_ = now_s();
        return Status::ok();
    }
    Status combine(std::span<float> out) override {
        shared_s.push_back(now_s() - last_);
        std::ranges::fill(out, 0.0f);
        last_ = now_s();
        return Status::ok();
    }
    std::vector<double> before_s, shared_s;  // one for each MoE layer and step

  private:
    double last_ = now_s();
};

// How often each expert was picked.
class PickCounter final : public ForwardProbe {
  public:
    explicit PickCounter(const ModelConfig& config) {
        trace.first_layer = config.first_dense_layers;
        trace.num_layers = config.num_moe_layers();
        trace.num_experts = config.num_experts;
        trace.picks.resize(static_cast<size_t>(trace.num_layers * trace.num_experts));
    }
    void on_layer(int32_t /*layer*/, std::span<const float> /*accumulator*/) override {}
    void on_routing(int32_t layer, const RoutingView& routing) override {
        const int32_t first = (layer - trace.first_layer) * trace.num_experts;
        for (const uint16_t expert : routing.experts) {
            ++trace.picks[static_cast<size_t>(first + expert)];
        }
        if (layer == trace.first_layer) ++trace.tokens;
    }
    PickTrace trace;
};

Result<Popularity> measure_popularity(TinyModel& tiny) {
    PickCounter picks(tiny.config());
    uint64_t step = 0;
    K3POD_ASSIGN(const auto seconds, run_tokens(tiny, tiny.experts(), step, &picks));
    const ModelConfig& config = tiny.config();
    return popularity_of(std::span(&picks.trace, 1), config.first_dense_layers,
                         config.num_moe_layers(), config.num_experts, config.top_k);
}

// What the constants come from, collected over the rounds: seconds of a step.
class Calibration {
  public:
    Status measure(TinyModel& tiny, const HeldExperts& sliced) {
        K3POD_TRY(measure_station(tiny));
        return measure_exchange(sliced);
    }

    PredictConstants constants(const ModelConfig& config, int rounds) const {
        const std::string here = "measured in the same run";
        const double layers = config.num_moe_layers();
        PredictConstants c;
        for (Constant* rate : {&c.compute, &c.hbm_bandwidth, &c.host_bandwidth, &c.server_compute,
                               &c.server_link, &c.station_link}) {
            *rate = {1e18, "never the slowest here"};
        }
        for (Constant* none :
             {&c.kda_attention, &c.mla_attention, &c.moe_tail, &c.dense_mlp, &c.kda_sequence,
              &c.kda_row, &c.mla_cached_token, &c.draft, &c.pick_reuse}) {
            *none = {0, "part of the others, or not used"};
        }
        const double before_s = undisturbed(before_s_, rounds);
        const double shared_s = undisturbed(shared_s_, rounds);
        c.moe_front = {before_s / layers, here + ", attention and tail included"};
        c.shared_experts = {shared_s / layers, here};
        c.head = {std::max(0.0, undisturbed(steps_s_, rounds) - before_s - shared_s),
                  here + ": the rest of a step"};
        c.round_trip = {std::max(0.0, undisturbed(exchanges_s_, rounds) / layers), here};
        c.server_bandwidth = {kBytesPerSecond, "the throttle"};
        return c;
    }

  private:
    Status measure_station(TinyModel& tiny) {
        Stopwatch stopwatch;
        uint64_t step = 0;
        K3POD_ASSIGN(const auto seconds, run_tokens(tiny, stopwatch, step));
        append(steps_s_, seconds);
        append(before_s_, sums_of_steps(stopwatch.before_s, tiny.config().num_moe_layers()));
        append(shared_s_, sums_of_steps(stopwatch.shared_s, tiny.config().num_moe_layers()));
        return Status::ok();
    }

    // Layers there and back one after the other, less the work.
    Status measure_exchange(const HeldExperts& sliced) {
        ThrottledPod pod(sliced, kBytesPerSecond, Nanoseconds(0));
        K3POD_TRY(pod.status());
        const ModelConfig& config = sliced.stores[0]->config();
        const std::vector<float> latents(static_cast<size_t>(config.latent), 0.5f);
        const std::vector<float> weights{0.25f, 0.25f, 0.25f, 0.25f};
        const std::vector<uint16_t> experts{1, 9, 17, 25};
        const double work_s = kExpertBytes * config.top_k / kServers / kBytesPerSecond;
        std::vector<double> layers_s;
        std::vector<float> out(latents.size());
        for (int32_t i = 0; i < kTokens * config.num_moe_layers(); ++i) {
            const double start = now_s();
            K3POD_TRY(pod.port().dispatch({.step = static_cast<uint64_t>(i + 1),
                                           .layer = config.first_dense_layers,
                                           .rows = 1,
                                           .latent = config.latent,
                                           .top_k = config.top_k,
                                           .latents = latents,
                                           .experts = experts,
                                           .weights = weights}));
            K3POD_TRY(pod.port().combine(out));
            layers_s.push_back(now_s() - start - work_s);
        }
        append(exchanges_s_, sums_of_steps(layers_s, config.num_moe_layers()));
        return Status::ok();
    }

    std::vector<double> before_s_, shared_s_, steps_s_, exchanges_s_;
};

// One pod with one delay.
struct Trial {
    const char* mode;
    const HeldExperts* held;
    std::chrono::microseconds delay;
    std::vector<double> fastest_s{};  // [tokens], of all rounds

    Status measure(TinyModel& tiny) {
        ThrottledPod pod(*held, kBytesPerSecond, delay);
        K3POD_TRY(pod.status());
        uint64_t step = 0;
        K3POD_ASSIGN(const auto seconds, run_tokens(tiny, pod.port(), step));
        if (fastest_s.empty()) fastest_s = seconds;
        for (size_t t = 0; t < seconds.size(); ++t) {
            fastest_s[t] = std::min(fastest_s[t], seconds[t]);
        }
        return Status::ok();
    }
    double mean_s() const {
        return std::accumulate(fastest_s.begin(), fastest_s.end(), 0.0) /
               static_cast<double>(fastest_s.size());
    }
};

Result<double> predicted_s(const Trial& trial, const ModelConfig& config,
                           const Popularity& popularity, PredictConstants constants) {
    constants.round_trip.value += Seconds(trial.delay).count();
    PredictModel model;
    model.num_kda_layers = config.num_kda_layers();
    model.num_mla_layers = config.num_mla_layers();
    model.num_dense_layers = config.first_dense_layers;
    model.bytes_per_column = int64_t{3} * (64 + 4);
    std::vector<PredictHolder> holders;
    for (const std::string& name : trial.held->placement.holders) {
        holders.push_back({name, HolderKind::kServer, constants.server_bandwidth.value,
                           constants.server_compute.value});
    }
    K3POD_ASSIGN(const Prediction prediction,
                 predict({model, trial.held->placement, holders, popularity, constants}, {}));
    return prediction.step.total_s;
}

}  // namespace

Result<Agreement> measure_agreement(int rounds) {
    // Servers and waits sleep; the threads that are made from here on wake when they are due.
    prctl(PR_SET_TIMERSLACK, 1000);
    K3POD_ASSIGN(const auto tiny, TinyModel::load({.dir = K3POD_SOURCE_DIR "/models/k3-tiny"}));
    const HeldExperts whole = HeldExperts::load(PlacementMode::kWhole, kServers);
    const HeldExperts sliced = HeldExperts::load(PlacementMode::kSliced, kServers);
    K3POD_ASSIGN(const Popularity popularity, measure_popularity(*tiny));
    std::vector<Trial> trials;
    for (const auto delay : kDelays) {
        trials.push_back({"whole", &whole, delay});
        trials.push_back({"sliced", &sliced, delay});
    }
    Calibration calibration;
    for (int round = 0; round < rounds; ++round) {
        K3POD_TRY(calibration.measure(*tiny, sliced));
        for (Trial& trial : trials) K3POD_TRY(trial.measure(*tiny));
    }
    Agreement agreement;
    agreement.constants = calibration.constants(tiny->config(), rounds);
    for (const Trial& trial : trials) {
        K3POD_ASSIGN(const double predicted,
                     predicted_s(trial, tiny->config(), popularity, agreement.constants));
        agreement.cases.push_back(
            {trial.mode, Seconds(trial.delay).count(), predicted, trial.mean_s()});
    }
    return agreement;
}

}  // namespace k3pod::testing

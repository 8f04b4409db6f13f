// The station's part of a token: all layers of Kimi-K3 at their real widths with random weights,
// the experts answered at once. One JSON line for each batch and context.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/station/k3_model.h"
#include "bench/station/random_weights.h"
#include "bench/support/gpu_read_rate.h"
#include "bench/support/report.h"
#include "bench/support/samples.h"
#include "k3pod/device/cuda.h"
#include "k3pod/model/cuda_model.h"

namespace k3pod::bench {
namespace {

struct Arguments {
    std::vector<int32_t> batches{1, 4, 16};
    std::vector<int32_t> contexts{4096, 32768, 131072};
    int32_t steps = 20;
    int32_t layers = 93;
};

constexpr int32_t kWarmUpSteps = 3;
constexpr int32_t kMoreTokens = 128;  // that a sequence grows by while it is measured

// Holds every expert and answers at once.
class StubHolder final : public ExpertPort {
  public:
    Status dispatch(const RoutedRows&) override { return Status::ok(); }
    Status combine(std::span<float> out) override {
        for (size_t i = 0; i < out.size(); ++i) out[i] = i % 2 == 0 ? 0.5f : -0.25f;
        return Status::ok();
    }
};

// A model and the memory of its sequences.
struct Station {
    ModelConfig config;
    int64_t weight_bytes = 0;
    std::unique_ptr<StateStore> store;
    std::unique_ptr<CudaModel> model;
};

Result<Station> make_station(const Arguments& arguments, int32_t num_pages) {
    Station station;
    station.config = k3_config(arguments.layers);
    StationWeights weights = k3_weights(station.config);
    station.weight_bytes = streamed_weight_bytes(station.config, weights);
    K3POD_ASSIGN(const RandomWeights random, RandomWeights::create());

    const int32_t max_rows = std::ranges::max(arguments.batches);
    const StateShape shape = state_shape(station.config, max_rows, num_pages);
    K3POD_ASSIGN(std::unique_ptr<StateMemory> memory, make_cuda_state_memory(shape));
    station.store = std::make_unique<StateStore>(shape, std::move(memory));
    const CudaModelOptions options{
        .max_rows = max_rows,
        .max_context = std::ranges::max(arguments.contexts) + kMoreTokens,
        .write = [&](const MatrixView&, const MatrixView& device) { return random.write(device); }};
    K3POD_ASSIGN(station.model,
                 CudaModel::create(station.config, std::move(weights), *station.store, options));
    return station;
}

// Sequences that have `context` tokens behind them, decoding side by side.
class Batch {
  public:
    static Result<std::unique_ptr<Batch>> make(Station& station, int32_t size, int32_t context) {
        std::unique_ptr<Batch> batch(new Batch(station, context));
        for (int32_t i = 0; i < size; ++i) {
            K3POD_ASSIGN(SequenceState state, station.store->acquire(context + kMoreTokens));
            batch->states_.push_back(std::move(state));
        }
        K3POD_TRY(batch->fill_cache());
        batch->ids_.assign(batch->states_.size(), 1000);
        batch->logits_.resize(batch->states_.size() * static_cast<size_t>(station.config.vocab));
        return batch;
    }
    ~Batch() {
        for (SequenceState& state : states_) station_.store->release(std::move(state));
    }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    // Milliseconds of the next token, as the engine sees it.
    Result<double> step() {
        const std::vector<SequenceChunk> chunks = next_chunks();
        const auto begin = std::chrono::steady_clock::now();
        K3POD_TRY(station_.model->forward({.step = ++step_, .chunks = chunks}, holder_, logits_));
        const auto end = std::chrono::steady_clock::now();
        if (!std::isfinite(logits_[0])) return internal_error("the logits are not finite");
        return std::chrono::duration<double, std::milli>(end - begin).count();
    }

    Result<std::vector<KernelTime>> profile() {
        const std::vector<SequenceChunk> chunks = next_chunks();
        return station_.model->profile({.step = ++step_, .chunks = chunks}, holder_);
    }

  private:
    Batch(Station& station, int32_t context) : station_(station), position_(context - 1) {}

    std::vector<SequenceChunk> next_chunks() {
        std::vector<SequenceChunk> chunks;
        for (size_t i = 0; i < states_.size(); ++i) {
            chunks.push_back({.state = &states_[i],
                              .position = position_,
                              .ids = std::span(ids_).subspan(i, 1),
                              .logits = SequenceChunk::Logits::kLast});
        }
        ++position_;
        return chunks;
    }

    // Zeroed pages would be read as fast as others and computed with faster.
    Status fill_cache() {
        K3POD_ASSIGN(const RandomWeights random, RandomWeights::create());
        const StateShape& shape = station_.store->shape();
        return random.fill_bf16(station_.store->pools().pages, StateStore::pool_bytes(shape).pages);
    }

    Station& station_;
    int32_t position_;
    uint64_t step_ = 0;
    StubHolder holder_;
    std::vector<SequenceState> states_;
    std::vector<int32_t> ids_;
    std::vector<float> logits_;
};

nlohmann::ordered_json kernel_times(const std::vector<KernelTime>& times) {
    nlohmann::ordered_json kinds;
    for (const KernelTime& time : times) {
        if (time.launches > 0) kinds[time.kind] = std::round(time.microseconds * 10) / 10;
    }
    return kinds;
}

Status measure(Station& station, const Arguments& arguments, int32_t size, int32_t context,
               nlohmann::ordered_json line) {
    K3POD_ASSIGN(const std::unique_ptr<Batch> batch, Batch::make(station, size, context));
    std::vector<double> samples;
    for (int32_t i = 0; i < kWarmUpSteps + arguments.steps; ++i) {
        K3POD_ASSIGN(const double ms, batch->step());
        if (i >= kWarmUpSteps) samples.push_back(ms);
    }
    K3POD_ASSIGN(const std::vector<KernelTime> times, batch->profile());

    const int64_t bytes =
        station.weight_bytes + size * state_bytes_per_sequence(station.config, context);
    const double floor_ms =
        static_cast<double>(bytes) / line["read_bytes_per_s"].get<double>() * 1e3;
    const Percentiles step_ms = percentiles_of(samples);
    line["batch"] = size;
    line["context"] = context;
    line["steps"] = arguments.steps;
    line["bytes"] = bytes;
    line["floor_ms"] = floor_ms;
    line["step_ms"] = step_ms.p50;
    line["best_ms"] = samples.front();
    line["p99_ms"] = step_ms.p99;
    line["times_floor"] = step_ms.p50 / floor_ms;
    line["kernels_us"] = kernel_times(times);
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
    return Status::ok();
}

int32_t pages_of(int32_t size, int32_t context) {
    return size * StateStore::pages_for(context + kMoreTokens);
}

Status run(const Arguments& arguments) {
    K3POD_ASSIGN(const double read_rate, gpu_read_rate());
    K3POD_ASSIGN(const CudaProperties gpu, cuda_properties(kCudaModelDevice));
    const ModelConfig config = k3_config(arguments.layers);
    const int64_t weight_bytes = streamed_weight_bytes(config, k3_weights(config)) * 33 / 32;
    const auto fits = [&](int32_t size, int32_t context) {
        const StateShape shape =
            state_shape(config, std::ranges::max(arguments.batches), pages_of(size, context));
        const int64_t spare = int64_t{6} << 30;  // work buffers, embeddings
        return weight_bytes + StateStore::bytes(shape) + spare < gpu.free_bytes;
    };
    int32_t num_pages = 0;
    for (const int32_t size : arguments.batches) {
        for (const int32_t context : arguments.contexts) {
            if (fits(size, context)) num_pages = std::max(num_pages, pages_of(size, context));
        }
    }
    K3POD_ASSIGN(Station station, make_station(arguments, num_pages));

    nlohmann::ordered_json header = report_header("station");
    header["gpu"] = gpu.name;
    header["layers"] = arguments.layers;
    header["read_bytes_per_s"] = read_rate;
    header["ceiling"] = "bytes of weights and state at the read rate measured in this run";
    for (const int32_t size : arguments.batches) {
        for (const int32_t context : arguments.contexts) {
            if (!fits(size, context)) {
                fmt::print(stderr, "batch {} at {} tokens does not fit this GPU's memory\n", size,
                           context);
                continue;
            }
            K3POD_TRY(measure(station, arguments, size, context, header));
        }
    }
    return Status::ok();
}

}  // namespace
}  // namespace k3pod::bench

int main(int argc, char** argv) {
    k3pod::bench::Arguments arguments;
    CLI::App app("Times the station's part of a token on a GPU, one JSON line a case.");
    app.add_option("--batch", arguments.batches, "Sequences that decode side by side")
        ->delimiter(',')
        ->check(CLI::Range(1, 64));
    app.add_option("--context", arguments.contexts, "Tokens behind each of them")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 20));
    app.add_option("--steps", arguments.steps, "Steps to time a case")->check(CLI::Range(1, 100));
    app.add_option("--layers", arguments.layers, "Layers, from the first one")
        ->check(CLI::Range(5, 93));
    CLI11_PARSE(app, argc, argv);
    const k3pod::Status status = k3pod::bench::run(arguments);
    if (!status.is_ok()) fmt::print(stderr, "bench_station: {}\n", status.to_string());
    return status.is_ok() ? 0 : 1;
}

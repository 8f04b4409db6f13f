#pragma once
// models/k3-tiny without processes: loaded as a station and its expert servers load it, run in
// place.

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/model/model.h"
#include "k3pod/placement/placement.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"
#include "tests/support/local_experts.h"

namespace k3pod::testing {

struct TinyModelOptions {
    std::filesystem::path dir;  // either release's layout
    PlacementMode mode = PlacementMode::kWhole;
    int32_t num_holders = 1;
    WireRounding rounding = WireRounding::kBoth;
    int32_t max_rows = 256;
    int32_t num_slots = 4;
    int32_t num_pages = 32;
    bool on_gpu = false;  // the station's part; the experts stay on the CPU
};

class TinyModel {
  public:
    static Result<std::unique_ptr<TinyModel>> load(const TinyModelOptions& options);

    // One step; [N, V]. Empty, and a test failure, when it fails.
    std::vector<float> step(std::span<const SequenceChunk> chunks, ForwardProbe* probe = nullptr);

    const ModelConfig& config() const { return config_; }
    const StationWeights& weights() const { return weights_; }
    Release release() const { return release_; }
    StateStore& store() { return *store_; }
    Model& model() { return *model_; }
    ExpertPort& experts() { return *experts_; }

  private:
    TinyModel() = default;
    Status make_model_on_gpu(const Checkpoint& checkpoint, const StateShape& shape,
                             int32_t max_rows);

    ModelConfig config_;
    Release release_ = Release::kNvfp4;
    StationWeights weights_;
    std::unique_ptr<StateStore> store_;
    std::unique_ptr<LocalExperts> experts_;
    std::unique_ptr<Model> model_;
    uint64_t num_steps_ = 0;
};

// One sequence, alone in its steps. Releases its state when it goes.
class SequenceRun {
  public:
    // The sequence may grow to max_tokens.
    SequenceRun(TinyModel& tiny, int32_t max_tokens);
    ~SequenceRun();
    SequenceRun(const SequenceRun&) = delete;
    SequenceRun& operator=(const SequenceRun&) = delete;

    int32_t position() const { return position_; }
    // The next chunk of the sequence, for a step of one's own making; counts it as run.
    SequenceChunk next(std::span<const int32_t> ids, SequenceChunk::Logits logits);
    // Runs it as a step.
    std::vector<float> feed(std::span<const int32_t> ids, SequenceChunk::Logits logits,
                            ForwardProbe* probe = nullptr);

  private:
    TinyModel& tiny_;
    SequenceState state_;
    int32_t position_ = 0;
};

}  // namespace k3pod::testing

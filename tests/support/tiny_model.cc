#include "tests/support/tiny_model.h"

#include <gtest/gtest.h>

#include <utility>

#include "k3pod/model/cuda_model.h"

namespace k3pod::testing {
namespace {

size_t num_logits_rows(std::span<const SequenceChunk> chunks) {
    size_t rows = 0;
    for (const SequenceChunk& chunk : chunks) {
        switch (chunk.logits) {
            case SequenceChunk::Logits::kNone:
                break;
            case SequenceChunk::Logits::kLast:
                ++rows;
                break;
            case SequenceChunk::Logits::kAll:
                rows += chunk.ids.size();
                break;
        }
    }
    return rows;
}

}  // namespace

Result<std::unique_ptr<TinyModel>> TinyModel::load(const TinyModelOptions& options) {
    std::unique_ptr<TinyModel> tiny(new TinyModel());
    K3POD_ASSIGN(tiny->config_, read_model_config(options.dir));
    K3POD_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.dir));
    K3POD_ASSIGN(tiny->release_, check_model(checkpoint, tiny->config_));
    K3POD_ASSIGN(tiny->weights_, load_station_weights(checkpoint, tiny->config_, nullptr));
    K3POD_ASSIGN(const Placement placement,
                 even_placement(tiny->config_, options.mode, options.num_holders));
    K3POD_ASSIGN(tiny->experts_,
                 LocalExperts::load(checkpoint, tiny->config_, tiny->release_, placement,
                                    {.max_rows = options.max_rows, .rounding = options.rounding}));
    const StateShape shape = state_shape(tiny->config_, options.num_slots, options.num_pages);
    if (options.on_gpu) {
        K3POD_TRY(tiny->make_model_on_gpu(checkpoint, shape, options.max_rows));
        return tiny;
    }
    tiny->store_ = std::make_unique<StateStore>(shape);
    K3POD_ASSIGN(tiny->model_,
                 Model::create(tiny->config_, tiny->weights_, *tiny->store_, options.max_rows));
    return tiny;
}

Status TinyModel::make_model_on_gpu(const Checkpoint& checkpoint, const StateShape& shape,
                                    int32_t max_rows) {
    K3POD_ASSIGN(std::unique_ptr<StateMemory> memory, make_cuda_state_memory(shape));
    store_ = std::make_unique<StateStore>(shape, std::move(memory));
    // Weights of its own: it frees them as it uploads them.
    K3POD_ASSIGN(StationWeights weights, load_station_weights(checkpoint, config_, nullptr));
    K3POD_ASSIGN(model_, CudaModel::create(config_, std::move(weights), *store_,
                                           {.max_rows = max_rows, .write = {}}));
    return Status::ok();
}

std::vector<float> TinyModel::step(std::span<const SequenceChunk> chunks, ForwardProbe* probe) {
    std::vector<float> logits(num_logits_rows(chunks) * static_cast<size_t>(config_.vocab));
    const Status status =
        model_->forward({.step = ++num_steps_, .chunks = chunks}, *experts_, logits, probe);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    if (!status.is_ok()) logits.clear();
    return logits;
}

SequenceRun::SequenceRun(TinyModel& tiny, int32_t max_tokens)
    : tiny_(tiny), state_(std::move(tiny.store().acquire(max_tokens)).value()) {}

SequenceRun::~SequenceRun() {
    tiny_.store().release(std::move(state_));
}

SequenceChunk SequenceRun::next(std::span<const int32_t> ids, SequenceChunk::Logits logits) {
    const SequenceChunk chunk{
        .state = &state_, .position = position_, .ids = ids, .logits = logits};
    position_ += static_cast<int32_t>(ids.size());
    return chunk;
}

std::vector<float> SequenceRun::feed(std::span<const int32_t> ids, SequenceChunk::Logits logits,
                                     ForwardProbe* probe) {
    const SequenceChunk chunk = next(ids, logits);
    return tiny_.step(std::span(&chunk, 1), probe);
}

}  // namespace k3pod::testing

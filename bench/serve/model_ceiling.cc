#include "model_ceiling.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "bench/support/or_exit.h"
#include "tests/support/tiny_model.h"

namespace k3pod::bench {
namespace {

constexpr int kPromptTokens = 80;
constexpr int32_t kId = 70;

class NoExperts final : public ExpertPort {
  public:
    Status dispatch(const RoutedRows& /*rows*/) override { return Status::ok(); }
    Status combine(std::span<float> out) override {
        std::ranges::fill(out, 0.0f);
        return Status::ok();
    }
};

double tokens_per_s(testing::TinyModel& tiny, ExpertPort& experts, int batch, int steps) {
    const std::vector<int32_t> prompt(kPromptTokens, kId);
    std::vector<std::unique_ptr<testing::SequenceRun>> runs;
    for (int i = 0; i < batch; ++i) {
        runs.push_back(std::make_unique<testing::SequenceRun>(tiny, kPromptTokens + steps));
        runs.back()->feed(prompt, SequenceChunk::Logits::kNone);
    }
    std::vector<float> logits(static_cast<size_t>(batch) *
                              static_cast<size_t>(tiny.config().vocab));
    std::vector<SequenceChunk> chunks;
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t step = 1; step <= static_cast<uint64_t>(steps); ++step) {
        chunks.clear();
        for (auto& run : runs) chunks.push_back(run->next({&kId, 1}, SequenceChunk::Logits::kLast));
        ok_or_exit(tiny.model().forward({.step = step, .chunks = chunks}, experts, logits));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return batch * steps / took.count();
}

}  // namespace

ModelRates measure_model(int batch, int steps) {
    const auto loaded = testing::TinyModel::load(
        {.dir = K3POD_SOURCE_DIR "/models/k3-tiny", .num_slots = batch, .num_pages = batch * 8});
    ok_or_exit(loaded.status());
    testing::TinyModel& tiny = **loaded;
    NoExperts none;
    return {.whole = tokens_per_s(tiny, tiny.experts(), batch, steps),
            .station_part = tokens_per_s(tiny, none, batch, steps)};
}

}  // namespace k3pod::bench

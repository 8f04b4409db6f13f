// The forward pass on a GPU, with the experts on the CPU: equal bits where the model promises them,
// and an end of its own when the experts fail. Against the reference: wire_rounding_test.cc.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "k3pod/device/cuda.h"
#include "tests/golden/reference.h"
#include "tests/support/tiny_model.h"

namespace k3pod::testing {
namespace {

using Logits = SequenceChunk::Logits;

class CudaForward : public ::testing::Test {
  protected:
    void SetUp() override {
        if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
        auto loaded = TinyModel::load({.dir = kTinyDir, .num_slots = 8, .on_gpu = true});
        ASSERT_TRUE(loaded) << loaded.status().to_string();
        tiny = std::move(*loaded);
        cases = golden_cases();
        ASSERT_EQ(cases.size(), 10u);
    }

    std::span<const int32_t> prompt(size_t i) const { return cases[i].prompt_ids; }
    std::span<const int32_t> first_token(size_t i) const {
        return std::span(cases[i].greedy_ids).first(1);
    }

    // Feeds the prompts of some cases, then decodes one token of each in one step. Logits by case,
    // in the order asked for.
    std::vector<std::vector<float>> decode_together(const std::vector<size_t>& order) {
        std::vector<std::unique_ptr<SequenceRun>> runs;
        std::vector<SequenceChunk> chunks;
        for (const size_t i : order) {
            runs.push_back(std::make_unique<SequenceRun>(*tiny, 128));
            runs.back()->feed(prompt(i).first(24), Logits::kNone);
            chunks.push_back(runs.back()->next(first_token(i), Logits::kLast));
        }
        const std::vector<float> logits = tiny->step(chunks);
        const auto vocab = static_cast<int64_t>(tiny->config().vocab);
        std::vector<std::vector<float>> rows;
        for (auto at = logits.begin(); at != logits.end(); at += vocab)
            rows.emplace_back(at, at + vocab);
        return rows;
    }

    std::unique_ptr<TinyModel> tiny;
    std::vector<GoldenCase> cases;
};

TEST_F(CudaForward, a_thousand_replays_of_a_step_are_equal) {
    std::vector<float> first;
    for (int32_t i = 0; i < 1000; ++i) {
        SequenceRun run(*tiny, 64);
        run.feed(prompt(0).first(16), Logits::kNone);
        const std::vector<float> logits = run.feed(first_token(0), Logits::kLast);
        ASSERT_FALSE(logits.empty());
        if (i == 0) first = logits;
        ASSERT_EQ(logits, first) << "replay " << i;
    }
}

TEST_F(CudaForward, the_place_in_the_batch_does_not_change_a_row) {
    const auto rows = decode_together({0, 1, 2, 3});
    const auto turned = decode_together({2, 0, 3, 1});
    ASSERT_EQ(rows.size(), 4u);
    ASSERT_EQ(turned.size(), 4u);
    EXPECT_EQ(turned[0], rows[2]);
    EXPECT_EQ(turned[1], rows[0]);
    EXPECT_EQ(turned[2], rows[3]);
    EXPECT_EQ(turned[3], rows[1]);
}

// Three rows run in the bucket of four.
TEST_F(CudaForward, padding_does_not_change_a_row) {
    const auto full = decode_together({0, 1, 2, 3});
    const auto padded = decode_together({0, 1, 2});
    ASSERT_EQ(padded.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(padded[i], full[i]) << "row " << i;
}

TEST_F(CudaForward, decoding_beside_prefill_agrees_with_decoding_alone) {
    const std::vector<float> alone = decode_together({0}).at(0);
    SequenceRun decoding(*tiny, 128), prefilling(*tiny, 128);
    decoding.feed(prompt(0).first(24), Logits::kNone);
    const std::vector<SequenceChunk> chunks = {prefilling.next(prompt(1), Logits::kNone),
                                               decoding.next(first_token(0), Logits::kLast)};
    const std::vector<float> beside = tiny->step(chunks);
    ASSERT_EQ(beside.size(), alone.size());
    EXPECT_LE(largest_difference(beside, alone), kLogitBound * largest_magnitude(alone));
}

TEST_F(CudaForward, a_sequence_on_recycled_state_equals_one_on_fresh_state) {
    const auto fresh = decode_together({0, 1, 2, 3, 4, 5, 6, 7});
    const auto recycled = decode_together({0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(recycled, fresh);
}

// Answers until `fails_in_layer`, then with an error.
class FailingPort final : public ExpertPort {
  public:
    FailingPort(ExpertPort& port, int32_t fails_in_layer)
        : port_(port), fails_in_layer_(fails_in_layer) {}
    Status dispatch(const RoutedRows& rows) override {
        if (rows.layer == fails_in_layer_) return unavailable("holder spark-3 is gone");
        return port_.dispatch(rows);
    }
    Status combine(std::span<float> out) override { return port_.combine(out); }

  private:
    ExpertPort& port_;
    int32_t fails_in_layer_;
};

TEST_F(CudaForward, an_error_of_the_experts_ends_the_step_and_the_next_step_runs) {
    const auto before = decode_together({0});
    FailingPort port(tiny->experts(), 5);
    std::vector<float> logits(static_cast<size_t>(tiny->config().vocab));
    for (const size_t num_tokens : {1, 24}) {  // a graph, and a step with prefill
        SequenceRun run(*tiny, 64);
        const SequenceChunk chunk = run.next(prompt(0).first(num_tokens), Logits::kLast);
        const Status status =
            tiny->model().forward({.step = 1, .chunks = {&chunk, 1}}, port, logits);
        EXPECT_EQ(status.code(), Code::kUnavailable);
        EXPECT_EQ(status.message(), "holder spark-3 is gone");
    }
    EXPECT_EQ(decode_together({0}), before);
}

}  // namespace
}  // namespace k3pod::testing

// Equal bits where the engine promises them, with the real weights and experts of models/k3-tiny.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/golden_cases.h"
#include "tests/support/tiny_model.h"

namespace k3pod::testing {
namespace {

using Logits = SequenceChunk::Logits;

class Bitwise : public ::testing::Test {
  protected:
    void SetUp() override {
        auto loaded = TinyModel::load({.dir = K3POD_SOURCE_DIR "/models/k3-tiny",
                                       .mode = PlacementMode::kSliced,
                                       .num_holders = 2});
        ASSERT_TRUE(loaded) << loaded.status().to_string();
        tiny = std::move(*loaded);
        auto read = read_golden_cases(K3POD_SOURCE_DIR "/tests/golden/k3-tiny/golden.json");
        ASSERT_TRUE(read) << read.status().to_string();
        cases = std::move(*read);
        ASSERT_EQ(cases.size(), 10u);
    }

    // Last logits of the prompt fed in pieces, then those of every greedy token behind it.
    std::vector<float> run_alone(const GoldenCase& c, size_t piece, size_t num_greedy) {
        SequenceRun run(*tiny, 512);
        std::vector<float> all;
        for (size_t at = 0; at < c.prompt_ids.size(); at += piece) {
            const std::span<const int32_t> rest = std::span(c.prompt_ids).subspan(at);
            const bool is_last = rest.size() <= piece;
            append(all, run.feed(rest.first(std::min(piece, rest.size())),
                                 is_last ? Logits::kLast : Logits::kNone));
        }
        for (size_t i = 0; i < num_greedy; ++i) {
            append(all, run.feed(std::span(c.greedy_ids).subspan(i, 1), Logits::kLast));
        }
        return all;
    }

    static void append(std::vector<float>& all, const std::vector<float>& more) {
        all.insert(all.end(), more.begin(), more.end());
    }

    std::unique_ptr<TinyModel> tiny;
    std::vector<GoldenCase> cases;
};

TEST_F(Bitwise, a_prompt_split_at_multiples_of_16_equals_one_whole) {
    for (const GoldenCase& c : cases) {
        const std::vector<float> whole = run_alone(c, 256, 4);
        for (const size_t piece : {16, 48, 64}) {
            EXPECT_EQ(run_alone(c, piece, 4), whole) << c.name << " in pieces of " << piece;
        }
    }
}

TEST_F(Bitwise, sequences_that_decode_together_equal_each_alone) {
    const std::vector<GoldenCase> four(cases.begin(), cases.begin() + 4);
    std::vector<std::unique_ptr<SequenceRun>> runs;
    std::vector<std::vector<float>> together(4);
    for (size_t i = 0; i < 4; ++i) {
        runs.push_back(std::make_unique<SequenceRun>(*tiny, 256));
        append(together[i], runs[i]->feed(four[i].prompt_ids, Logits::kLast));
    }
    const auto vocab = static_cast<size_t>(tiny->config().vocab);
    for (size_t t = 0; t < 12; ++t) {
        std::vector<SequenceChunk> chunks;
        for (size_t i = 0; i < 4; ++i) {
            chunks.push_back(
                runs[i]->next(std::span(four[i].greedy_ids).subspan(t, 1), Logits::kLast));
        }
        const std::vector<float> logits = tiny->step(chunks);
        ASSERT_EQ(logits.size(), 4 * vocab);
        for (size_t i = 0; i < 4; ++i) {
            append(together[i], {logits.begin() + static_cast<int64_t>(i * vocab),
                                 logits.begin() + static_cast<int64_t>((i + 1) * vocab)});
        }
    }
    runs.clear();
    for (size_t i = 0; i < 4; ++i)
        EXPECT_EQ(together[i], run_alone(four[i], 256, 12)) << four[i].name;
}

TEST_F(Bitwise, prefill_beside_decoding_sequences_equals_prefill_alone) {
    SequenceRun decoding(*tiny, 256), prefilling(*tiny, 256);
    std::vector<float> decoded = decoding.feed(cases[0].prompt_ids, Logits::kLast);
    const std::span<const int32_t> prompt = cases[1].prompt_ids;
    const std::vector<SequenceChunk> first = {
        decoding.next(std::span(cases[0].greedy_ids).first(1), Logits::kLast),
        prefilling.next(prompt.first(32), Logits::kNone)};
    append(decoded, tiny->step(first));
    const std::vector<SequenceChunk> second = {
        prefilling.next(prompt.subspan(32), Logits::kLast),
        decoding.next(std::span(cases[0].greedy_ids).subspan(1, 1), Logits::kLast)};
    const std::vector<float> logits = tiny->step(second);
    const auto vocab = static_cast<int64_t>(tiny->config().vocab);
    ASSERT_EQ(std::ssize(logits), 2 * vocab);
    append(decoded, {logits.begin() + vocab, logits.end()});
    EXPECT_EQ(decoded, run_alone(cases[0], 256, 2));
    EXPECT_EQ(std::vector<float>(logits.begin(), logits.begin() + vocab),
              run_alone(cases[1], 256, 0));
}

TEST_F(Bitwise, a_sequence_on_recycled_state_equals_one_on_fresh_state) {
    const std::vector<float> fresh = run_alone(cases[0], 256, 8);
    {
        std::vector<std::unique_ptr<SequenceRun>> others;
        for (size_t i = 4; i < 8; ++i) {
            others.push_back(std::make_unique<SequenceRun>(*tiny, 8 * kPageTokens));
            others.back()->feed(cases[i].prompt_ids, Logits::kLast);
        }
        ASSERT_EQ(tiny->store().num_free_slots(), 0);
        ASSERT_EQ(tiny->store().num_free_pages(), 0);
    }
    EXPECT_EQ(run_alone(cases[0], 256, 8), fresh);
}

}  // namespace
}  // namespace k3pod::testing

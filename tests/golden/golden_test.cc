// The engine against an independent fp64 reference, with every way of placing the experts and
// nothing rounded on the way to them. No position is excepted and no bound may be loosened: a
// difference shows in the layer that it comes from.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/golden/reference.h"
#include "tests/support/npy.h"

namespace k3pod::testing {
namespace {

using Logits = SequenceChunk::Logits;

class Golden : public ::testing::TestWithParam<PlacementCase> {
  protected:
    void SetUp() override {
        auto loaded = TinyModel::load({.dir = kTinyDir,
                                       .mode = GetParam().mode,
                                       .num_holders = GetParam().num_holders,
                                       .rounding = WireRounding::kNone});
        ASSERT_TRUE(loaded) << loaded.status().to_string();
        tiny = std::move(*loaded);
        cases = golden_cases();
        ASSERT_EQ(cases.size(), 10u);
    }

    std::unique_ptr<TinyModel> tiny;
    std::vector<GoldenCase> cases;
};

TEST_P(Golden, last_prompt_position_agrees_in_every_layer) {
    for (const GoldenCase& c : cases) {
        SCOPED_TRACE(c.name);
        SequenceRun run(*tiny, 512);
        LayerTrace trace(*tiny);
        const std::vector<float> logits = run.feed(c.prompt_ids, Logits::kLast, &trace);
        ASSERT_FALSE(logits.empty());
        expect_layers(c, trace, tiny->config().num_layers);
        expect_top_logits(c, logits);
    }
}

// Every position of the prompt, fed in chunks of `piece` tokens.
void expect_all_positions(TinyModel& tiny, const GoldenCase& c, size_t piece) {
    const Result<NpyArray> expected =
        read_npy(std::string(K3POD_SOURCE_DIR "/tests/golden/k3-tiny/") + c.name + ".logits.npy");
    ASSERT_TRUE(expected) << expected.status().to_string();
    const auto vocab = static_cast<size_t>(tiny.config().vocab);
    ASSERT_THAT(expected->shape, ::testing::ElementsAre(std::ssize(c.prompt_ids), vocab));
    const float bound = kLogitBound * largest_magnitude(expected->values);

    SequenceRun run(tiny, 512);
    std::vector<float> logits;
    for (size_t t = 0; t < c.prompt_ids.size(); ++t) {
        if (t % piece == 0) {
            const std::span<const int32_t> rest = std::span(c.prompt_ids).subspan(t);
            logits = run.feed(rest.first(std::min(piece, rest.size())), Logits::kAll);
            ASSERT_FALSE(logits.empty());
        }
        const std::span<const float> have = std::span(logits).subspan(t % piece * vocab, vocab);
        const std::span<const float> want = expected->row(static_cast<int64_t>(t));
        EXPECT_EQ(argmax(have), argmax(want)) << "position " << t;
        EXPECT_LE(largest_difference(have, want), bound) << "position " << t;
    }
}

TEST_P(Golden, every_prompt_position_agrees_in_one_chunk_and_token_by_token) {
    int32_t num_cases = 0;
    for (const GoldenCase& c : cases) {
        if (c.name != "add" && c.name != "unicode") continue;
        SCOPED_TRACE(c.name);
        expect_all_positions(*tiny, c, c.prompt_ids.size());
        expect_all_positions(*tiny, c, 1);
        ++num_cases;
    }
    EXPECT_EQ(num_cases, 2);
}

TEST_P(Golden, greedy_continuation_is_the_same_wherever_it_is_decided) {
    expect_greedy(*tiny, cases);
}

using enum PlacementMode;
INSTANTIATE_TEST_SUITE_P(Placements, Golden,
                         ::testing::Values(PlacementCase{kWhole, 1}, PlacementCase{kWhole, 2},
                                           PlacementCase{kWhole, 3}, PlacementCase{kWhole, 8},
                                           PlacementCase{kSliced, 1}, PlacementCase{kSliced, 2},
                                           PlacementCase{kSliced, 3}, PlacementCase{kSliced, 8}),
                         [](const auto& placement) { return placement_name(placement.param); });

}  // namespace
}  // namespace k3pod::testing

// k3-tiny rewritten in the layout of the MXFP4 release. The experts are the same numbers; attention
// is BF16 instead of FP8 with tile scales, so each of its weights is rounded once more, by up to
// 2^-9.

#include <gtest/gtest.h>

#include "tests/golden/reference.h"
#include "tests/support/checkpoint_fixture.h"

namespace k3pod::testing {
namespace {

using Logits = SequenceChunk::Logits;

constexpr float kBf16WeightBound = 2e-3f;  // of the largest absolute logit; 8.5e-4 measured

class Mxfp4 : public ::testing::Test {
  protected:
    void SetUp() override {
        EditableCheckpoint checkpoint(kTinyDir);
        convert_to_mxfp4(checkpoint);
        checkpoint.save(folder.path() / "mxfp4");
        auto loaded =
            TinyModel::load({.dir = folder.path() / "mxfp4", .rounding = WireRounding::kNone});
        ASSERT_TRUE(loaded) << loaded.status().to_string();
        mxfp4 = std::move(*loaded);
        auto original = TinyModel::load({.dir = kTinyDir, .rounding = WireRounding::kNone});
        ASSERT_TRUE(original) << original.status().to_string();
        nvfp4 = std::move(*original);
        cases = golden_cases();
        ASSERT_EQ(cases.size(), 10u);
    }

    TempFolder folder;
    std::unique_ptr<TinyModel> mxfp4, nvfp4;
    std::vector<GoldenCase> cases;
};

TEST_F(Mxfp4, is_read_as_what_it_is) {
    EXPECT_EQ(mxfp4->release(), Release::kMxfp4);
    EXPECT_EQ(nvfp4->release(), Release::kNvfp4);
}

TEST_F(Mxfp4, logits_agree_with_those_of_the_nvfp4_release) {
    for (const GoldenCase& c : cases) {
        SCOPED_TRACE(c.name);
        const std::vector<float> have = SequenceRun(*mxfp4, 512).feed(c.prompt_ids, Logits::kLast);
        const std::vector<float> want = SequenceRun(*nvfp4, 512).feed(c.prompt_ids, Logits::kLast);
        ASSERT_EQ(have.size(), want.size());
        EXPECT_EQ(argmax(have), argmax(want));
        EXPECT_LE(largest_difference(have, want), kBf16WeightBound * largest_magnitude(want));
        EXPECT_NE(have,
                  want);  // attention was rounded: equal bits would mean the same file was read
    }
}

TEST_F(Mxfp4, greedy_continuation_is_the_reference_wherever_it_is_decided) {
    expect_greedy(*mxfp4, cases);
}

}  // namespace
}  // namespace k3pod::testing

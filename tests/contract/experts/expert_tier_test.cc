// What every ExpertTier promises, over the demo checkpoint's experts: the reference is an
// ExpertRunner. The tier in a GPU's memory is skipped where there is no GPU.

#include "k3pod/experts/expert_tier.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "k3pod/device/cuda.h"
#include "k3pod/experts/expert_store.h"
#include "tests/support/random_values.h"
#include "tests/support/tolerance.h"
#include "tests/unit/experts/tiny_checkpoint.h"

namespace k3pod {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::poisoned;
using wire::WireEntry;

constexpr int32_t kLayer = 5;
constexpr int32_t kMaxRows = 12;
constexpr int32_t kTopK = 4;

struct Frame {
    int32_t layer = kLayer;
    int32_t rows = 0;
    std::vector<Bf16> latents;  // [R, L]
    std::vector<WireEntry> entries;
};

std::vector<Shard> all_shards(int32_t begin, int32_t end) {
    std::vector<Shard> shards;
    for (int32_t layer = 1; layer <= 8; ++layer) {
        const auto more = layer_shards(layer, begin, end);
        shards.insert(shards.end(), more.begin(), more.end());
    }
    return shards;
}

class ExpertTierContract : public ::testing::TestWithParam<Backend> {
  protected:
    void SetUp() override {
        if (GetParam() == Backend::kCuda && num_cuda_devices() == 0) {
            GTEST_SKIP() << "no CUDA device";
        }
    }

    std::unique_ptr<ExpertTier> load(std::span<const Shard> shards) const {
        const ExpertTierSource source{tiny.checkpoint, tiny.config, tiny.release, shards};
        auto tier = ExpertTier::load(GetParam(), source, kMaxRows, nullptr);
        EXPECT_TRUE(tier.is_ok()) << tier.status().to_string();
        return std::move(tier).value();
    }

    Frame random_frame(int32_t layer, int32_t rows) {
        Frame frame{.layer = layer, .rows = rows, .latents = {}, .entries = {}};
        for (const float v : random.normals(int64_t{rows} * kTinyLatent)) {
            frame.latents.push_back(to_bf16(v));
        }
        for (uint16_t expert = 0; expert < kTinyExperts; ++expert) {
            for (uint16_t row = 0; row < rows; ++row) {
                // An eighth of the picks: top-4 of 32 on the average, but never more than the
                // limit.
                const bool has_room = std::ssize(frame.entries) < int64_t{kMaxRows} * kTopK;
                if (has_room && random.integer(0, 7) == 0) {
                    frame.entries.push_back({row, expert, random.uniform(0.0f, 1.0f)});
                }
            }
        }
        return frame;
    }

    static std::vector<float> run(ExpertTier& tier, const Frame& frame) {
        auto out = poisoned(int64_t{frame.rows} * kTinyLatent);
        const Status status = tier.run(frame.layer, frame.rows, frame.latents, frame.entries, out);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        return out;
    }

    std::vector<float> expected(const ExpertStore& store, const Frame& frame) const {
        ExpertRunner runner(store, kMaxRows);
        auto out = poisoned(int64_t{frame.rows} * kTinyLatent);
        EXPECT_TRUE(runner.run(frame.layer, frame.rows, frame.latents, frame.entries, out).is_ok());
        return out;
    }

    // Sums of 128 products twice, in another order.
    static void expect_near(const std::vector<float>& out, const std::vector<float>& reference) {
        ASSERT_EQ(out.size(), reference.size());
        double largest = 0;
        for (const float v : reference) largest = std::max(largest, std::abs(double{v}));
        const double tolerance = testing::f32_sum_tolerance(2 * kTinyWidth, 8 * largest);
        for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], reference[i], tolerance) << i;
    }

    testing::RandomValues random;
    ::testing::ScopedTrace trace{__FILE__, __LINE__, random.trace()};
    TinyCheckpoint tiny = TinyCheckpoint::open();
};

TEST_P(ExpertTierContract, works_as_the_reference_does_on_any_frame) {
    const auto tier = load(all_shards(0, kTinyWidth));
    const auto store = tiny.load(all_shards(0, kTinyWidth)).value();
    for (int i = 0; i < 100; ++i) {
        const Frame frame = random_frame(random.integer(1, 8), random.integer(1, kMaxRows));
        expect_near(run(*tier, frame), expected(*store, frame));
        if (HasFatalFailure()) FAIL() << "frame " << i;
    }
}

TEST_P(ExpertTierContract, works_on_slices_of_any_width_and_several_of_one_expert) {
    auto shards = all_shards(0, 32);
    const auto more = all_shards(64, 128);
    shards.insert(shards.end(), more.begin(), more.end());
    const auto tier = load(shards);
    const auto store = tiny.load(shards).value();
    for (const int32_t rows : {1, 2, 7, kMaxRows}) {
        const Frame frame = random_frame(3, rows);
        expect_near(run(*tier, frame), expected(*store, frame));
    }
}

TEST_P(ExpertTierContract, says_what_it_holds) {
    const std::vector<Shard> shards{{1, 9, 0, 128}, {4, 31, 32, 96}};
    const auto tier = load(shards);
    const auto store = tiny.load(shards).value();
    EXPECT_EQ(tier->num_shards(), 2);
    EXPECT_EQ(tier->num_nvfp4_shards(), store->num_nvfp4_shards());
    EXPECT_GT(tier->size_bytes(), 0);
    EXPECT_LE(tier->size_bytes(), store->size_bytes());
}

TEST_P(ExpertTierContract, leaves_rows_without_entries_at_zero) {
    const auto tier = load(layer_shards(kLayer, 0, kTinyWidth));
    Frame frame = random_frame(kLayer, 3);
    frame.entries = {{0, 7, 0.5f}, {2, 7, 0.25f}};
    const auto out = run(*tier, frame);
    EXPECT_THAT(std::span(out).subspan(kTinyLatent, kTinyLatent), Each(0.0f));
    frame.entries.clear();
    EXPECT_THAT(run(*tier, frame), Each(0.0f));
}

TEST_P(ExpertTierContract, gives_a_row_the_same_bits_without_the_other_rows) {
    const auto tier = load(all_shards(0, kTinyWidth));
    const Frame frame = random_frame(kLayer, kMaxRows);
    const auto together = run(*tier, frame);
    for (int32_t row = 0; row < kMaxRows; ++row) {
        Frame alone{.layer = kLayer, .rows = 1, .latents = {}, .entries = {}};
        const auto begin = frame.latents.begin() + row * kTinyLatent;
        alone.latents.assign(begin, begin + kTinyLatent);
        for (const WireEntry& entry : frame.entries) {
            if (entry.row == row) alone.entries.push_back({0, entry.expert, entry.weight});
        }
        const auto out = run(*tier, alone);
        ASSERT_EQ(std::memcmp(out.data(), together.data() + row * kTinyLatent,
                              kTinyLatent * sizeof(float)),
                  0)
            << "row " << row;
    }
}

TEST_P(ExpertTierContract, repeats_a_frame_with_the_same_bits) {
    const auto tier = load(all_shards(0, kTinyWidth));
    const Frame frame = random_frame(2, kMaxRows);
    const auto first = run(*tier, frame);
    for (int i = 0; i < 50; ++i) ASSERT_EQ(run(*tier, frame), first) << i;
}

TEST_P(ExpertTierContract, may_be_used_from_another_thread_than_it_was_loaded_on) {
    const auto tier = load(all_shards(0, kTinyWidth));
    const Frame frame = random_frame(1, 4);
    const auto here = run(*tier, frame);
    std::vector<float> there;
    std::thread([&] { there = run(*tier, frame); }).join();
    EXPECT_EQ(there, here);
}

TEST_P(ExpertTierContract, refuses_what_it_cannot_work_on_and_stays_usable) {
    const auto tier = load(std::vector<Shard>{{kLayer, 2, 0, 128}});
    Frame frame = random_frame(kLayer, 2);
    std::vector<float> out(frame.latents.size());
    const auto refusal = [&](int32_t layer, std::vector<WireEntry> entries) {
        return tier->run(layer, frame.rows, frame.latents, entries, out);
    };
    const Status not_held = refusal(kLayer, {{0, 2, 1.0f}, {0, 7, 1.0f}});
    EXPECT_EQ(not_held.code(), Code::kNotFound);
    EXPECT_THAT(not_held.message(), HasSubstr("layer 5 expert 7"));
    EXPECT_EQ(refusal(0, {{0, 2, 1.0f}}).code(), Code::kNotFound);
    EXPECT_EQ(refusal(99, {{0, 2, 1.0f}}).code(), Code::kNotFound);
    EXPECT_THAT(refusal(kLayer, {{2, 2, 1.0f}}).message(), HasSubstr("row 2 of a frame of 2 rows"));
    EXPECT_THAT(refusal(kLayer, {{1, 2, 1.0f}, {0, 2, 1.0f}}).message(),
                HasSubstr("sorted by expert"));
    frame.entries = {{0, 2, 1.0f}};
    EXPECT_EQ(run(*tier, frame).size(), frame.latents.size());
}

TEST_P(ExpertTierContract, refuses_shards_outside_the_model) {
    const std::vector<Shard> shards{{1, 32, 0, 128}};
    const ExpertTierSource source{tiny.checkpoint, tiny.config, tiny.release, shards};
    const auto tier = ExpertTier::load(GetParam(), source, kMaxRows, nullptr);
    EXPECT_EQ(tier.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(tier.status().message(), HasSubstr("32 experts"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ExpertTierContract,
                         ::testing::Values(Backend::kCpu, Backend::kCuda), [](const auto& test) {
                             return test.param == Backend::kCpu ? "cpu" : "cuda";
                         });

TEST(ExpertTier, says_why_there_is_none_on_a_gpu) {
    if (num_cuda_devices() > 0) GTEST_SKIP() << "there is a CUDA device";
    const TinyCheckpoint tiny = TinyCheckpoint::open();
    const ExpertTierSource source{tiny.checkpoint, tiny.config, tiny.release, {}};
    const auto tier = ExpertTier::load(Backend::kCuda, source, kMaxRows, nullptr);
    ASSERT_FALSE(tier.is_ok());
    EXPECT_THAT(tier.status().message(),
                HasSubstr(cuda_is_built() ? "there is no CUDA device" : "built without CUDA"));
}

}  // namespace
}  // namespace k3pod

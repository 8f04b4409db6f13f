#include "k3pod/kernels/attn_res.h"

#include "k3pod/ops/attn_res.h"
#include "k3pod/ops/elementwise.h"
#include "tests/kernel/attention/compare.h"
#include "tests/support/gpu_test.h"
#include "tests/support/random_values.h"

namespace k3pod {
namespace {

using testing::from_gpu;
using testing::kF32Close;
using testing::poisoned_on_gpu;
using testing::relative_error;
using testing::to_gpu;

struct Case {
    int32_t rows, hidden, blocks;
    float mixer_size;  // how far apart the logits are
    bool has_norm, has_addend;
};

class AttnResKernel : public testing::GpuTest {
  protected:
    void check(const Case& c) {
        SCOPED_TRACE(::testing::Message() << c.rows << " rows of " << c.hidden << ", " << c.blocks
                                          << " blocks, addend " << c.has_addend);
        const int64_t size = int64_t{c.rows} * c.hidden;
        std::vector<std::vector<float>> blocks;
        for (int32_t i = 0; i < c.blocks; ++i) blocks.push_back(random.normals(size, 2.0f));
        auto prefix = random.normals(size);
        const auto addend = random.normals(size);
        const auto mixer = random.normals(c.hidden, c.mixer_size);
        const auto norm = random.normals(c.hidden);

        const auto prefix_gpu = to_gpu(prefix), addend_gpu = to_gpu(addend);
        const auto mixer_gpu = to_gpu(mixer), norm_gpu = to_gpu(norm);
        std::vector<DeviceBuffer> blocks_gpu;
        std::vector<const float*> pointers;
        for (const auto& block : blocks) {
            blocks_gpu.push_back(to_gpu(block));
            pointers.push_back(blocks_gpu.back().as<float>());
        }
        const auto out = poisoned_on_gpu<float>(size);
        const auto out_bf16 = poisoned_on_gpu<Bf16>(size);
        const Status done =
            kernels::attn_res_mix({.rows = c.rows,
                                   .hidden = c.hidden,
                                   .blocks = pointers,
                                   .prefix = prefix_gpu.as<float>(),
                                   .addend = c.has_addend ? addend_gpu.as<float>() : nullptr,
                                   .mixer = mixer_gpu.as<float>(),
                                   .eps = 1e-5f,
                                   .norm_weight = c.has_norm ? norm_gpu.as<float>() : nullptr,
                                   .norm_eps = 1e-5f,
                                   .out = out.as<float>(),
                                   .out_bf16 = out_bf16.as<Bf16>()},
                                  stream());
        ASSERT_TRUE(done.is_ok()) << done.to_string();
        synchronize();

        if (c.has_addend) ops::add(addend, prefix);
        EXPECT_EQ(from_gpu<float>(prefix_gpu), prefix);
        const std::vector<std::span<const float>> views(blocks.begin(), blocks.end());
        std::vector<float> want(prefix.size());
        ops::attn_res_mix(
            {.tokens = c.rows,
             .blocks = views,
             .prefix = prefix,
             .mixer = mixer,
             .eps = 1e-5f,
             .norm_weight = c.has_norm ? std::span<const float>(norm) : std::span<const float>(),
             .norm_eps = 1e-5f,
             .out = want});
        const auto got = from_gpu<float>(out);
        // Logits of some tens carry rounding into the probabilities.
        EXPECT_LT(relative_error(got, want), 1e-5);
        if (c.blocks == 0 && !c.has_norm) {
            EXPECT_EQ(got, want);
        }
        const auto rounded = from_gpu<Bf16>(out_bf16);
        for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(rounded[i].bits, to_bf16(got[i]).bits);
    }
    testing::RandomValues random;
};

TEST_F(AttnResKernel, equals_its_twin_for_every_number_of_blocks) {
    SCOPED_TRACE(random.trace());
    for (int32_t blocks = 0; blocks <= 8; ++blocks) {
        check({1, 7168, blocks, 0.02f, true, blocks % 2 == 0});
        check({3, 256, blocks, 0.1f, true, blocks % 2 == 1});
    }
    check({2, 7168, 31, 0.02f, true, true});
}

TEST_F(AttnResKernel, equals_its_twin_over_odd_widths_and_without_the_norm) {
    SCOPED_TRACE(random.trace());
    for (const int32_t hidden : {1, 37, 131, 2049, 6000}) {
        check({2, hidden, 3, 0.05f, false, true});
        check({2, hidden, 0, 0.05f, false, false});
    }
}

TEST_F(AttnResKernel, lets_one_candidate_dominate) {
    SCOPED_TRACE(random.trace());
    check({2, 7168, 8, 2.0f, true, false});
}

TEST_F(AttnResKernel, gives_a_row_the_same_bits_in_any_company) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kRows = 16, kHidden = 7168;
    const auto block = to_gpu(random.normals(kRows * kHidden));
    const auto prefix = to_gpu(random.normals(kRows * kHidden));
    const auto mixer = to_gpu(random.normals(kHidden, 0.02f));
    const auto mix = [&](int32_t first, int32_t rows) {
        const auto out = poisoned_on_gpu<float>(int64_t{rows} * kHidden);
        const float* const blocks[] = {block.as<float>() + first * kHidden};
        EXPECT_TRUE(kernels::attn_res_mix({.rows = rows,
                                           .hidden = kHidden,
                                           .blocks = blocks,
                                           .prefix = prefix.as<float>() + first * kHidden,
                                           .mixer = mixer.as<float>(),
                                           .eps = 1e-5f,
                                           .norm_weight = mixer.as<float>(),
                                           .norm_eps = 1e-5f,
                                           .out = out.as<float>()},
                                          stream())
                        .is_ok());
        synchronize();
        return from_gpu<float>(out);
    };
    const auto all = mix(0, kRows);
    const auto alone = mix(11, 1);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + 11 * kHidden));
}

}  // namespace
}  // namespace k3pod

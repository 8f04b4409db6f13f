#include "k3pod/kernels/elementwise.h"

#include "k3pod/ops/combine.h"
#include "k3pod/ops/elementwise.h"
#include "k3pod/ops/mlp.h"
#include "k3pod/ops/rms_norm.h"
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

class ElementwiseKernels : public testing::GpuTest {
  protected:
    testing::RandomValues random;
};

TEST_F(ElementwiseKernels, situ_equals_its_twin_from_tiny_to_huge_inputs) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kRows = 3, kWidth = 301;
    auto both = random.normals(int64_t{kRows} * 2 * kWidth, 10.0f);  // gate and up side by side
    both[0] = 1e4f;
    both[1] = -1e4f;
    both[2] = 1e-40f;
    std::vector<float> want;
    for (int32_t r = 0; r < kRows; ++r) {
        const auto row = std::span(both).subspan(r * 2 * kWidth, 2 * kWidth);
        std::vector<float> y(kWidth);
        ops::situ({4.0f, 25.0f}, row.first(kWidth), row.last(kWidth), y);
        want.insert(want.end(), y.begin(), y.end());
    }
    const auto in = to_gpu(both);
    const auto y = poisoned_on_gpu<float>(kRows * kWidth);
    const auto y_bf16 = poisoned_on_gpu<Bf16>(kRows * kWidth);
    const Status done = kernels::situ({.rows = kRows,
                                       .width = kWidth,
                                       .beta = 4.0f,
                                       .linear_beta = 25.0f,
                                       .gate = in.as<float>(),
                                       .up = in.as<float>() + kWidth,
                                       .input_stride = 2 * kWidth,
                                       .y = y.as<float>(),
                                       .y_bf16 = y_bf16.as<Bf16>()},
                                      stream());
    ASSERT_TRUE(done.is_ok()) << done.to_string();
    synchronize();
    EXPECT_LT(relative_error(from_gpu<float>(y), want), kF32Close);
    EXPECT_LT(relative_error(testing::widened(from_gpu<Bf16>(y_bf16)), want), testing::kBf16Close);
}

TEST_F(ElementwiseKernels, sums_sigmoids_and_conversions_equal_their_twins) {
    SCOPED_TRACE(random.trace());
    constexpr int64_t kCount = 4097;
    const auto x = random.normals(kCount, 5.0f);
    const auto before = random.normals(kCount);
    const auto x_gpu = to_gpu(x), sum = to_gpu(before);
    const auto sigmoid = poisoned_on_gpu<float>(kCount), silu = poisoned_on_gpu<float>(kCount);
    const auto narrow = poisoned_on_gpu<Bf16>(kCount);
    const auto wide = poisoned_on_gpu<float>(kCount);
    ASSERT_TRUE(kernels::add(x_gpu.as<float>(), sum.as<float>(), kCount, stream()).is_ok());
    ASSERT_TRUE(kernels::sigmoid(x_gpu.as<float>(), sigmoid.as<float>(), kCount, stream()).is_ok());
    ASSERT_TRUE(kernels::silu(x_gpu.as<float>(), silu.as<float>(), kCount, stream()).is_ok());
    ASSERT_TRUE(kernels::to_bf16(x_gpu.as<float>(), narrow.as<Bf16>(), kCount, stream()).is_ok());
    ASSERT_TRUE(kernels::to_f32(narrow.as<Bf16>(), wide.as<float>(), kCount, stream()).is_ok());
    synchronize();
    std::vector<float> want = before;
    ops::add(x, want);
    EXPECT_EQ(from_gpu<float>(sum), want);
    ops::sigmoid(x, want);
    EXPECT_LT(relative_error(from_gpu<float>(sigmoid), want), kF32Close);
    ops::silu(x, want);
    EXPECT_LT(relative_error(from_gpu<float>(silu), want), kF32Close);
    std::vector<Bf16> rounded(kCount);
    ops::to_bf16(x, rounded);
    EXPECT_EQ(from_gpu<float>(wide), testing::widened(rounded));
}

TEST_F(ElementwiseKernels, embedding_copies_rows_and_zeroes_those_of_no_id) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kVocab = 7, kHidden = 33;
    const auto table = random.normals(kVocab * kHidden);
    std::vector<Bf16> narrow(table.size());
    ops::to_bf16(table, narrow);
    const auto table_gpu = to_gpu(narrow);
    const auto ids = to_gpu(std::vector<int32_t>{6, -2, 0, 7});
    const auto out = poisoned_on_gpu<float>(4 * kHidden);
    const Status done = kernels::embed({.table = {.format = WeightFormat::kBf16,
                                                  .rows = kVocab,
                                                  .cols = kHidden,
                                                  .data = table_gpu.data()},
                                        .rows = 4,
                                        .ids = ids.as<int32_t>(),
                                        .out = out.as<float>()},
                                       stream());
    ASSERT_TRUE(done.is_ok()) << done.to_string();
    synchronize();
    const auto got = from_gpu<float>(out);
    for (int32_t i = 0; i < kHidden; ++i) {
        EXPECT_EQ(got[i], to_f32(narrow[6 * kHidden + i]));
        EXPECT_EQ(got[kHidden + i], 0.0f);
        EXPECT_EQ(got[2 * kHidden + i], to_f32(narrow[i]));
        EXPECT_EQ(got[3 * kHidden + i], 0.0f);
    }
}

TEST_F(ElementwiseKernels, combine_adds_the_parts_in_order_and_norms_the_sum) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kRows = 4, kLatent = 3584;
    const auto whole = random.normals(kRows * kLatent);
    const auto some = random.normals(2 * kLatent);
    std::vector<Bf16> some_bf16(some.size());
    ops::to_bf16(some, some_bf16);
    const std::vector<uint16_t> rows{1, 3};
    const auto weight = random.normals(kLatent);

    const ops::PartialRows parts[] = {{.f32 = whole}, {.bf16 = some_bf16, .rows = rows}};
    std::vector<float> want(whole.size());
    ops::combine({.rows = kRows, .latent = kLatent, .parts = parts, .out = want});

    const auto whole_gpu = to_gpu(whole), weight_gpu = to_gpu(weight);
    const auto some_gpu = to_gpu(some_bf16);
    const auto rows_gpu = to_gpu(rows);
    const auto num_rows = to_gpu(std::vector<int32_t>{2});
    const kernels::CombinePart parts_gpu[] = {{.f32 = whole_gpu.as<float>()},
                                              {.bf16 = some_gpu.as<Bf16>(),
                                               .rows = rows_gpu.as<uint16_t>(),
                                               .num_rows = num_rows.as<int32_t>()}};
    const auto out = poisoned_on_gpu<float>(kRows * kLatent);
    kernels::CombineArgs args{
        .rows = kRows, .latent = kLatent, .parts = parts_gpu, .out = out.as<float>()};
    ASSERT_TRUE(kernels::combine(args, stream()).is_ok());
    synchronize();
    EXPECT_EQ(from_gpu<float>(out), want);

    args.norm_weight = weight_gpu.as<float>();
    args.norm_eps = 1e-5f;
    ASSERT_TRUE(kernels::combine(args, stream()).is_ok());
    synchronize();
    ops::rms_norm(kRows, weight, 1e-5f, want, want);
    EXPECT_LT(relative_error(from_gpu<float>(out), want), kF32Close);
}

}  // namespace
}  // namespace k3pod

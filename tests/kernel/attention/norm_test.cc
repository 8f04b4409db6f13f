#include "k3pod/kernels/norm.h"

#include "k3pod/ops/rms_norm.h"
#include "tests/kernel/attention/compare.h"
#include "tests/support/gpu_test.h"
#include "tests/support/random_values.h"

namespace k3pod {
namespace {

using testing::from_gpu;
using testing::poisoned_on_gpu;
using testing::relative_error;
using testing::to_gpu;

class RmsNormKernel : public testing::GpuTest {};

TEST_F(RmsNormKernel, equals_its_twin_over_odd_widths) {
    testing::RandomValues random;
    SCOPED_TRACE(random.trace());
    for (const int32_t width : {1, 3, 31, 128, 131, 1536, 3584, 7168}) {
        constexpr int32_t kRows = 5;
        const auto x = random.normals(int64_t{kRows} * width, 3.0f);
        const auto weight = random.normals(width);
        std::vector<float> want(x.size());
        ops::rms_norm(kRows, weight, 1e-5f, x, want);
        const auto x_gpu = to_gpu(x), weight_gpu = to_gpu(weight);
        const auto y = poisoned_on_gpu<float>(int64_t{kRows} * width);
        const auto y_bf16 = poisoned_on_gpu<Bf16>(int64_t{kRows} * width);
        const Status done = kernels::rms_norm({.rows = kRows,
                                               .width = width,
                                               .weight = weight_gpu.as<float>(),
                                               .eps = 1e-5f,
                                               .x = x_gpu.as<float>(),
                                               .y = y.as<float>(),
                                               .y_bf16 = y_bf16.as<Bf16>()},
                                              stream());
        ASSERT_TRUE(done.is_ok()) << done.to_string();
        synchronize();
        const auto got = from_gpu<float>(y);
        EXPECT_LT(relative_error(got, want), testing::kF32Close) << width;
        const auto rounded = from_gpu<Bf16>(y_bf16);
        for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(rounded[i].bits, to_bf16(got[i]).bits);
    }
}

TEST_F(RmsNormKernel, reads_rows_of_a_wider_matrix_and_writes_in_place) {
    testing::RandomValues random;
    SCOPED_TRACE(random.trace());
    constexpr int32_t kRows = 3, kWidth = 512, kStride = 576;
    const auto x = random.normals(kRows * kStride);
    const auto weight = random.normals(kWidth);
    const auto weight_gpu = to_gpu(weight);
    std::vector<float> want;
    for (int32_t r = 0; r < kRows; ++r) {
        std::vector<float> row(kWidth);
        ops::rms_norm(1, weight, 1e-6f, std::span(x).subspan(r * kStride, kWidth), row);
        want.insert(want.end(), row.begin(), row.end());
    }
    const auto x_gpu = to_gpu(x);
    const auto y = poisoned_on_gpu<float>(kRows * kWidth);
    kernels::RmsNormArgs args{.rows = kRows,
                              .width = kWidth,
                              .weight = weight_gpu.as<float>(),
                              .eps = 1e-6f,
                              .x = x_gpu.as<float>(),
                              .x_stride = kStride,
                              .y = y.as<float>()};
    ASSERT_TRUE(kernels::rms_norm(args, stream()).is_ok());
    args.x = y.as<float>();
    args.x_stride = 0;
    synchronize();
    EXPECT_LT(relative_error(from_gpu<float>(y), want), testing::kF32Close);
    ASSERT_TRUE(kernels::rms_norm(args, stream()).is_ok());
    synchronize();
    std::vector<float> twice(want.size());
    ops::rms_norm(kRows, weight, 1e-6f, want, twice);
    EXPECT_LT(relative_error(from_gpu<float>(y), twice), testing::kF32Close);
}

}  // namespace
}  // namespace k3pod

// Every way through a product against the CPU twin: formats, shapes and numbers of rows.

#include "k3pod/kernels/gemm.h"

#include <gmock/gmock.h>

#include "k3pod/ops/linear.h"
#include "tests/support/gpu_matrix.h"

namespace k3pod::testing {
namespace {

using enum WeightFormat;

// Two bf16 parts of an activation leave at most 2^-17 of it.
constexpr double kBound = 1e-5;
// One bf16 of an activation and of a weight leave 2^-9 of either, at random.
constexpr double kLargeBound = 3e-3;

class Gemm : public GpuTest {
  protected:
    // y = x W^T on the GPU, from poisoned memory.
    std::vector<float> run(const GpuMatrix& w, int32_t tokens, std::span<const float> x) {
        const DeviceBuffer input = to_gpu(x);
        const DeviceBuffer output = poisoned_on_gpu<float>(int64_t{tokens} * w.view().rows);
        const kernels::GemmBand band{.weight = w.view(),
                                     .y = {.f32 = output.as<float>(), .stride = w.view().rows}};
        const auto workspace =
            DeviceBuffer::create(kernels::gemm_workspace_bytes({&band, 1}, tokens)).value();
        const Status launched =
            kernels::gemm({.tokens = tokens,
                           .x = {.f32 = input.as<float>(), .stride = w.view().cols},
                           .bands = {&band, 1},
                           .workspace = workspace.data()},
                          stream());
        EXPECT_TRUE(launched.is_ok()) << launched.to_string();
        synchronize();
        return from_gpu<float>(output);
    }

    // Against the size that outputs have as a rule: a few of them may cancel out.
    void compare(WeightFormat format, int32_t rows, int32_t cols, int32_t tokens,
                 double bound = kBound) {
        SCOPED_TRACE(std::string(weight_format_name(format)) + " " + std::to_string(rows) + "x" +
                     std::to_string(cols) + " T=" + std::to_string(tokens));
        const Matrix w = random_matrix(format, rows, cols, random);
        const int32_t drawn = std::max(tokens, 16);
        std::vector<float> x = random.normals(int64_t{drawn} * cols);
        std::vector<float> want(static_cast<size_t>(int64_t{drawn} * rows));
        ops::linear(w.view(), drawn, x, want);
        const double usual = norm(want) * std::sqrt(double(tokens) / double(drawn));
        x.resize(static_cast<size_t>(int64_t{tokens} * cols));
        want.resize(static_cast<size_t>(int64_t{tokens} * rows));
        const std::vector<float> got = run(GpuMatrix(w.view()), tokens, x);
        EXPECT_LE(distance(got, want), bound * usual);
    }

    RandomValues random;
};

struct Shape {
    int32_t rows, cols;
};

TEST_F(Gemm, agrees_with_the_cpu_for_few_rows_of_activations) {
    SCOPED_TRACE(random.trace());
    for (const WeightFormat format : {kBf16, kFp8Tile, kNvfp4, kMxfp4}) {
        for (const auto& [rows, cols] : {Shape{3, 256},
                                         {16, 64},
                                         {96, 128},
                                         {130, 192},
                                         {576, 384},
                                         {100, 2176},
                                         {40, 4128},
                                         {2500, 96}}) {
            for (const int32_t tokens : {1, 2, 3, 4}) compare(format, rows, cols, tokens);
        }
    }
}

TEST_F(Gemm, agrees_with_the_cpu_for_up_to_64_rows_and_beyond) {
    SCOPED_TRACE(random.trace());
    for (const WeightFormat format : {kBf16, kFp8Tile, kNvfp4, kMxfp4}) {
        for (const auto& [rows, cols] : {Shape{3, 256}, {130, 192}, {576, 1152}, {2500, 96}}) {
            for (const int32_t tokens : {5, 8, 13, 16, 17, 33, 64, 65, 130}) {
                compare(format, rows, cols, tokens);
            }
        }
    }
}

TEST_F(Gemm, agrees_with_the_cpu_where_rows_are_not_whole_pieces) {
    SCOPED_TRACE(random.trace());
    for (const int32_t tokens : {1, 4, 5, 70}) {
        compare(kF32, 33, 50, tokens);
        compare(kBf16, 33, 50, tokens);
        compare(kFp8Tile, 131, 137, tokens);
    }
}

TEST_F(Gemm, agrees_with_the_cpu_at_k3s_shapes) {
    SCOPED_TRACE(random.trace());
    struct Case {
        WeightFormat format;
        int32_t rows, cols;
    };
    for (const auto& [format, rows, cols] : {Case{kFp8Tile, 12288, 7168},
                                             {kFp8Tile, 12288, 128},
                                             {kFp8Tile, 7168, 12288},
                                             {kFp8Tile, 576, 7168},
                                             {kFp8Tile, 18432, 1536},
                                             {kBf16, 896, 7168},
                                             {kBf16, 3584, 7168},
                                             {kBf16, 7168, 3584},
                                             {kBf16, 7168, 6144},
                                             {kBf16, 256, 33792},
                                             {kMxfp4, 3072, 3584},
                                             {kNvfp4, 3584, 3072}}) {
        for (const int32_t tokens : {1, 4, 16}) compare(format, rows, cols, tokens);
    }
}

// Where cuBLASLt takes over, both sides are rounded to bf16.
TEST_F(Gemm, agrees_with_the_cpu_up_to_bf16_for_many_rows_and_large_matrices) {
    SCOPED_TRACE(random.trace());
    for (const WeightFormat format : {kBf16, kFp8Tile, kNvfp4, kMxfp4}) {
        for (const int32_t tokens : {96, 131}) {
            compare(format, 1032, 1024, tokens, kLargeBound);
            compare(format, 40, 2048, tokens, kLargeBound);
        }
    }
    compare(kFp8Tile, 12288, 7168, 96, kLargeBound);
}

TEST_F(Gemm, keeps_fp32_grade_results_over_many_magnitudes) {
    SCOPED_TRACE(random.trace());
    const Matrix w = random_matrix(kFp8Tile, 64, 512, random);
    const GpuMatrix on_gpu(w.view());
    for (const int exponent : {-20, -6, 0, 15}) {
        const std::vector<float> x = random.normals(2 * 512, std::ldexp(1.0f, exponent));
        std::vector<float> want(2 * 64);
        ops::linear(w.view(), 2, x, want);
        EXPECT_LE(relative_error(run(on_gpu, 2, x), want), kBound) << "2^" << exponent;
    }
}

// With a column's unit vector as input, a product is that column: every weight byte and every scale
// comes out alone.
class ExactWeights : public Gemm {
  protected:
    void expect_exact(const Matrix& w, int32_t tokens) {
        const int32_t rows = w.view().rows, cols = w.view().cols;
        std::vector<float> want(static_cast<size_t>(int64_t{rows} * cols));
        ops::dequantize_rows(w.view(), 0, rows, want);
        const GpuMatrix on_gpu(w.view());
        for (int32_t first = 0; first + tokens <= cols; first += tokens) {
            std::vector<float> x(static_cast<size_t>(int64_t{tokens} * cols));
            for (int32_t t = 0; t < tokens; ++t) x[static_cast<size_t>(t * cols + first + t)] = 1;
            const std::vector<float> y = run(on_gpu, tokens, x);
            for (int32_t i = 0; i < tokens * rows; ++i) {
                const int32_t col = first + i / rows, row = i % rows;
                ASSERT_EQ(y[static_cast<size_t>(i)], want[static_cast<size_t>(row * cols + col)])
                    << "row " << row << " column " << col;
            }
        }
    }
};

TEST_F(ExactWeights, of_all_e4m3_bytes) {
    Matrix w(kFp8Tile, 16, 256);
    for (size_t i = 0; i < w.mutable_data().size(); ++i) {
        const size_t value = (i * 17 + i / 256) % 256;
        w.mutable_data()[i] = static_cast<std::byte>(value % 128 == 127 ? 0 : value);
    }
    const float scales[2] = {0.0625f, 3.0f};
    std::memcpy(w.mutable_scales().data(), scales, sizeof(scales));
    expect_exact(w, 4);
    expect_exact(w, 16);
}

TEST_F(ExactWeights, of_all_e2m1_bytes_with_all_e4m3_scales) {
    Matrix w(kNvfp4, 16, 512);
    for (size_t i = 0; i < w.mutable_data().size(); ++i) {
        w.mutable_data()[i] = static_cast<std::byte>(i % 256);
    }
    for (size_t i = 0; i < w.mutable_scales().size(); ++i) {
        w.mutable_scales()[i] = static_cast<std::byte>(i % 127);
    }
    w.set_global_scale(0.25f);
    expect_exact(w, 4);
    expect_exact(w, 16);
}

TEST_F(ExactWeights, of_all_e2m1_bytes_with_e8m0_scales_of_any_sensible_size) {
    Matrix w(kMxfp4, 16, 512);
    for (size_t i = 0; i < w.mutable_data().size(); ++i) {
        w.mutable_data()[i] = static_cast<std::byte>(i % 256);
    }
    for (size_t i = 0; i < w.mutable_scales().size(); ++i) {
        w.mutable_scales()[i] = static_cast<std::byte>(65 + i % 127);
    }
    expect_exact(w, 4);
    expect_exact(w, 16);
}

TEST_F(Gemm, gives_a_row_the_same_bits_at_every_place_and_in_every_replay) {
    SCOPED_TRACE(random.trace());
    const Matrix w = random_matrix(kFp8Tile, 300, 2304, random);
    const GpuMatrix on_gpu(w.view());
    for (const int32_t tokens : {4, 16, 64}) {
        const std::vector<float> x = random.normals(int64_t{tokens} * 2304);
        std::vector<float> rotated(x.begin() + 2304, x.end());
        rotated.insert(rotated.end(), x.begin(), x.begin() + 2304);
        const std::vector<float> y = run(on_gpu, tokens, x);
        const std::vector<float> z = run(on_gpu, tokens, rotated);
        EXPECT_TRUE(std::equal(y.begin() + 300, y.end(), z.begin())) << tokens;
        EXPECT_TRUE(std::equal(y.begin(), y.begin() + 300, z.end() - 300)) << tokens;
        for (int replay = 0; replay < 20; ++replay) ASSERT_EQ(run(on_gpu, tokens, x), y);
    }
}

}  // namespace
}  // namespace k3pod::testing

// Several matrices in one launch, gate and up, and what is refused.

#include <gmock/gmock.h>

#include "k3pod/kernels/gemm.h"
#include "k3pod/ops/linear.h"
#include "k3pod/ops/mlp.h"
#include "tests/support/gpu_matrix.h"

namespace k3pod::testing {
namespace {

using enum WeightFormat;
using ::testing::HasSubstr;

constexpr double kBound = 1e-5;
constexpr double kBf16Bound = 2.5e-3;

class GemmBands : public GpuTest {
  protected:
    RandomValues random;
};

std::vector<float> widened(const std::vector<Bf16>& values) {
    std::vector<float> floats;
    for (const Bf16 v : values) floats.push_back(to_f32(v));
    return floats;
}

TEST_F(GemmBands, share_their_input_and_write_where_they_are_told) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kCols = 384;
    const int32_t rows[] = {144, 3, 96, 17};
    for (const int32_t tokens : {1, 4, 7, 64, 65}) {
        SCOPED_TRACE(tokens);
        const std::vector<float> x = random.normals(int64_t{tokens} * kCols);
        const DeviceBuffer input = to_gpu(x);
        // One row of all outputs, the bands side by side.
        constexpr int32_t kStride = 144 + 3 + 96 + 17;
        const DeviceBuffer output = poisoned_on_gpu<float>(int64_t{tokens} * kStride);
        std::vector<Matrix> host;
        std::vector<GpuMatrix> on_gpu;
        std::vector<kernels::GemmBand> bands;
        int32_t at = 0;
        for (const int32_t n : rows) {
            host.push_back(random_matrix(kFp8Tile, n, kCols, random));
            on_gpu.emplace_back(host.back().view());
            bands.push_back({.weight = on_gpu.back().view(),
                             .y = {.f32 = output.as<float>() + at, .stride = kStride}});
            at += n;
        }
        const auto workspace =
            DeviceBuffer::create(kernels::gemm_workspace_bytes(bands, tokens)).value();
        const Status launched = kernels::gemm({.tokens = tokens,
                                               .x = {.f32 = input.as<float>(), .stride = kCols},
                                               .bands = bands,
                                               .workspace = workspace.data()},
                                              stream());
        ASSERT_TRUE(launched.is_ok()) << launched.to_string();
        synchronize();
        std::vector<float> want(static_cast<size_t>(tokens * kStride));
        at = 0;
        for (const Matrix& w : host) {
            ops::linear_band({w.view(), 0, w.view().rows}, tokens, {x.data(), kCols},
                             {want.data() + at, kStride});
            at += w.view().rows;
        }
        EXPECT_LE(relative_error(from_gpu<float>(output), want), kBound);
    }
}

TEST_F(GemmBands, add_to_what_is_there_and_round_the_sum) {
    SCOPED_TRACE(random.trace());
    constexpr int32_t kRows = 70, kCols = 256;
    for (const int32_t tokens : {2, 20}) {
        const Matrix w = random_matrix(kBf16, kRows, kCols, random);
        const GpuMatrix on_gpu(w.view());
        std::vector<Bf16> x;
        for (const float v : random.normals(int64_t{tokens} * kCols)) x.push_back(to_bf16(v));
        const std::vector<float> before = random.normals(int64_t{tokens} * kRows);
        const DeviceBuffer input = to_gpu(x), output = to_gpu(before);
        const DeviceBuffer rounded = poisoned_on_gpu<Bf16>(int64_t{tokens} * kRows);
        const kernels::GemmBand band{
            .weight = on_gpu.view(),
            .y = {.f32 = output.as<float>(), .bf16 = rounded.as<Bf16>(), .stride = kRows},
            .adds = true};
        const auto workspace =
            DeviceBuffer::create(kernels::gemm_workspace_bytes({&band, 1}, tokens)).value();
        const Status launched = kernels::gemm({.tokens = tokens,
                                               .x = {.bf16 = input.as<Bf16>(), .stride = kCols},
                                               .bands = {&band, 1},
                                               .workspace = workspace.data()},
                                              stream());
        ASSERT_TRUE(launched.is_ok()) << launched.to_string();
        synchronize();
        std::vector<float> want(before.size());
        ops::linear(w.view(), tokens, widened(x), want);
        for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
        EXPECT_LE(relative_error(from_gpu<float>(output), want), kBound);
        EXPECT_LE(relative_error(widened(from_gpu<Bf16>(rounded)), want), kBf16Bound);
    }
}

TEST_F(GemmBands, gate_and_up_become_situ) {
    SCOPED_TRACE(random.trace());
    constexpr ops::SituParams kSitu{4.0f, 25.0f};
    for (const WeightFormat format : {kF32, kBf16, kFp8Tile, kNvfp4, kMxfp4}) {
        for (const int32_t width : {1, 24, 130, 768}) {
            for (const int32_t tokens : {1, 3, 4, 9, 64, 70}) {
                SCOPED_TRACE(std::string(weight_format_name(format)) + " " + std::to_string(width) +
                             " T=" + std::to_string(tokens));
                constexpr int32_t kCols = 224;
                const Matrix gate = random_matrix(format, width, kCols, random);
                const Matrix up = random_matrix(format, width, kCols, random);
                const GpuMatrix gate_on_gpu(gate.view()), up_on_gpu(up.view());
                const std::vector<float> x = random.normals(int64_t{tokens} * kCols, 4.0f);
                const DeviceBuffer input = to_gpu(x);
                const DeviceBuffer output = poisoned_on_gpu<float>(int64_t{tokens} * width);
                const auto workspace = DeviceBuffer::create(kernels::gated_gemm_workspace_bytes(
                                                                gate_on_gpu.view(), tokens))
                                           .value();
                const Status launched =
                    kernels::gated_gemm({.tokens = tokens,
                                         .x = {.f32 = input.as<float>(), .stride = kCols},
                                         .gate = gate_on_gpu.view(),
                                         .up = up_on_gpu.view(),
                                         .beta = kSitu.beta,
                                         .linear_beta = kSitu.linear_beta,
                                         .y = {.f32 = output.as<float>(), .stride = width},
                                         .workspace = workspace.data()},
                                        stream());
                ASSERT_TRUE(launched.is_ok()) << launched.to_string();
                synchronize();
                std::vector<float> g(static_cast<size_t>(tokens * width)), u(g.size());
                ops::linear(gate.view(), tokens, x, g);
                ops::linear(up.view(), tokens, x, u);
                ops::situ(kSitu, g, u, g);
                EXPECT_LE(relative_error(from_gpu<float>(output), g), 2 * kBound);
            }
        }
    }
}

TEST_F(GemmBands, refuse_what_does_not_fit_together) {
    const DeviceBuffer memory = poisoned_on_gpu<float>(1024);
    const MatrixView w{kF32, 8, 16, memory.data(), nullptr};
    MatrixView wider = w;
    wider.cols = 32;
    const kernels::DeviceRowsOut y{.f32 = memory.as<float>(), .stride = 8};
    const kernels::GemmBand bands[] = {{w, y}, {wider, y}};
    const kernels::DeviceRows x{.f32 = memory.as<float>(), .stride = 16};
    EXPECT_THAT(kernels::gemm({.tokens = 1, .x = x, .bands = bands}, stream()).message(),
                HasSubstr("cols is 32; it must be above 0 and the same in all bands"));
    EXPECT_THAT(kernels::gemm({.tokens = -1, .x = x, .bands = {bands, 1}}, stream()).message(),
                HasSubstr("tokens is -1"));
    EXPECT_THAT(kernels::gemm({.tokens = 1, .x = {}, .bands = {bands, 1}}, stream()).message(),
                HasSubstr("x is 0; it must be exactly one of f32 and bf16"));
    EXPECT_TRUE(kernels::gemm({.tokens = 0, .x = x, .bands = {bands, 1}}, stream()).is_ok());
}

}  // namespace
}  // namespace k3pod::testing

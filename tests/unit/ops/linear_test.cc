#include "k3pod/ops/linear.h"

#include <cmath>
#include <cstring>

#include "k3pod/ops/embedding.h"
#include "tests/support/weight_matrices.h"
#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::f32_sum_tolerance;
using testing::is_fp4;
using testing::kAllFormats;
using testing::poisoned;
using testing::random_matrix;
using testing::weight_at;

struct Shape {
    int32_t rows, cols;
};

// Tails of vectors, tiles of 128, the column block of 1024, ragged last tiles (96 and 576 rows).
constexpr Shape kShapes[] = {{1, 1}, {3, 7}, {5, 33}, {96, 130}, {131, 257}, {17, 1024}, {9, 2100}};

int32_t fitting_cols(WeightFormat format, int32_t cols) {
    return is_fp4(format) ? (cols + 31) / 32 * 32 : cols;
}

void expect_product(const MatrixView& w, int32_t tokens, const std::vector<float>& x,
                    const std::vector<float>& y) {
    for (int32_t t = 0; t < tokens; ++t) {
        for (int32_t r = 0; r < w.rows; ++r) {
            double sum = 0;
            double magnitude = 0;
            for (int32_t c = 0; c < w.cols; ++c) {
                const double term = weight_at(w, r, c) * double{x[t * w.cols + c]};
                sum += term;
                magnitude += std::abs(term);
            }
            ASSERT_NEAR(y[t * w.rows + r], sum, f32_sum_tolerance(w.cols, magnitude))
                << weight_format_name(w.format) << " [" << w.rows << ", " << w.cols << "] token "
                << t << " row " << r;
        }
    }
}

class Linear : public EveryTarget {};

TEST_P(Linear, equals_the_plain_product_in_every_format) {
    for (const WeightFormat format : kAllFormats) {
        for (const Shape& shape : kShapes) {
            const int32_t cols = fitting_cols(format, shape.cols);
            const Matrix w = random_matrix(format, shape.rows, cols, random);
            for (const int32_t tokens : {1, 2, 7}) {
                const auto x = random.normals(int64_t{tokens} * cols);
                auto y = poisoned(int64_t{tokens} * shape.rows);
                linear(w.view(), tokens, x, y);
                expect_product(w.view(), tokens, x, y);
            }
        }
    }
}

TEST_P(Linear, gives_a_row_the_same_bits_for_any_number_of_tokens) {
    constexpr int32_t kTokens = 13;
    for (const WeightFormat format : kAllFormats) {
        const int32_t cols = fitting_cols(format, 1317);
        const Matrix w = random_matrix(format, 37, cols, random);
        const auto x = random.normals(int64_t{kTokens} * cols);
        auto together = poisoned(kTokens * 37);
        linear(w.view(), kTokens, x, together);
        for (int32_t t = 0; t < kTokens; ++t) {
            auto alone = poisoned(37);
            linear(w.view(), 1, std::span(x).subspan(t * cols, cols), alone);
            ASSERT_EQ(std::memcmp(alone.data(), together.data() + t * 37, 37 * sizeof(float)), 0)
                << weight_format_name(format) << " token " << t;
        }
    }
}

TEST_P(Linear, reads_every_fp8_and_fp4_code_exactly) {
    for (int32_t code = 0; code < 256; ++code) {
        Matrix fp8(WeightFormat::kFp8Tile, 1, 1);
        Matrix nvfp4(WeightFormat::kNvfp4, 1, 32);
        Matrix mxfp4(WeightFormat::kMxfp4, 1, 32);
        const float tile_scale = 0.25f;
        std::memcpy(fp8.mutable_scales().data(), &tile_scale, sizeof(tile_scale));
        fp8.mutable_data()[0] = static_cast<std::byte>(code);
        for (Matrix* m : {&nvfp4, &mxfp4}) {
            for (auto& b : m->mutable_data()) b = std::byte{0x9a};  // +1 (odd), -1 (even)
        }
        for (auto& s : nvfp4.mutable_scales()) s = static_cast<std::byte>(code);
        for (auto& s : mxfp4.mutable_scales()) s = static_cast<std::byte>(code);
        for (const Matrix* m : {&fp8, &nvfp4, &mxfp4}) {
            const bool is_nan = m == &mxfp4 ? code == 255 : (code & 0x7f) == 0x7f;
            if (is_nan) continue;  // refused at load
            auto row = poisoned(m->view().cols);
            dequantize_rows(m->view(), 0, 1, row);
            for (int32_t c = 0; c < m->view().cols; ++c) {
                ASSERT_EQ(row[c], weight_at(m->view(), 0, c))
                    << weight_format_name(m->view().format) << " code " << code << " column " << c;
            }
        }
    }
}

TEST_P(Linear, reads_nibbles_low_first) {
    Matrix m(WeightFormat::kMxfp4, 1, 32);
    for (size_t i = 0; i < 16; ++i) m.mutable_data()[i] = static_cast<std::byte>(i | (15 - i) << 4);
    m.mutable_scales()[0] = std::byte{128};
    auto row = poisoned(32);
    dequantize_rows(m.view(), 0, 1, row);
    EXPECT_EQ(row,
              (std::vector<float>{0,  -12, 1, -8, 2, -6, 3, -4, 4, -3, 6, -2, 8, -1,  12, -0, -0,
                                  12, -1,  8, -2, 6, -3, 4, -4, 3, -6, 2, -8, 1, -12, 0}));
}

TEST_P(Linear, band_equals_the_same_rows_of_the_whole) {
    for (const WeightFormat format : kAllFormats) {
        const Matrix w = random_matrix(format, 300, 160, random);
        const auto x = random.normals(3 * 160);
        auto whole = poisoned(3 * 300);
        linear(w.view(), 3, x, whole);
        auto band = poisoned(3 * 130);
        linear_band({w.view(), 120, 245}, 3, {x.data(), 160}, {band.data(), 130});
        for (int32_t t = 0; t < 3; ++t) {
            for (int32_t r = 0; r < 125; ++r) {
                ASSERT_EQ(band[t * 130 + r], whole[t * 300 + 120 + r]);
            }
            EXPECT_TRUE(std::isnan(band[t * 130 + 125])) << "wrote past the band";
        }
    }
}

TEST_P(Linear, transposed_band_equals_the_plain_product) {
    constexpr int32_t kTokens = 3;
    for (const WeightFormat format : kAllFormats) {
        for (const int32_t band_rows : {1, 5, 128, 200}) {
            const int32_t cols = fitting_cols(format, 177);
            const Matrix w = random_matrix(format, 260, cols, random);
            const auto x = random.normals(kTokens * band_rows);
            auto y = poisoned(kTokens * (cols + 1));
            linear_band_transposed({w.view(), 40, 40 + band_rows}, kTokens, {x.data(), band_rows},
                                   {y.data(), cols + 1});
            for (int32_t t = 0; t < kTokens; ++t) {
                for (int32_t c = 0; c < cols; ++c) {
                    double sum = 0;
                    double magnitude = 0;
                    for (int32_t r = 0; r < band_rows; ++r) {
                        const double term =
                            weight_at(w.view(), 40 + r, c) * double{x[t * band_rows + r]};
                        sum += term;
                        magnitude += std::abs(term);
                    }
                    ASSERT_NEAR(y[t * (cols + 1) + c], sum, f32_sum_tolerance(band_rows, magnitude))
                        << weight_format_name(format) << " band of " << band_rows;
                }
                EXPECT_TRUE(std::isnan(y[t * (cols + 1) + cols])) << "wrote past the row";
            }
        }
    }
}

TEST_P(Linear, transposed_band_gives_a_row_the_same_bits_for_any_number_of_tokens) {
    const Matrix w = random_matrix(WeightFormat::kFp8Tile, 256, 512, random);
    const auto x = random.normals(5 * 128);
    auto together = poisoned(5 * 512);
    linear_band_transposed({w.view(), 128, 256}, 5, {x.data(), 128}, {together.data(), 512});
    for (int32_t t = 0; t < 5; ++t) {
        auto alone = poisoned(512);
        linear_band_transposed({w.view(), 128, 256}, 1, {x.data() + t * 128, 128},
                               {alone.data(), 512});
        ASSERT_EQ(std::memcmp(alone.data(), together.data() + t * 512, 512 * sizeof(float)), 0);
    }
}

TEST_P(Linear, embeds_ids_in_order) {
    const Matrix table = random_matrix(WeightFormat::kBf16, 9, 35, random);
    const std::vector<int32_t> ids{8, 0, 8};
    auto out = poisoned(3 * 35);
    embed(table.view(), ids, out);
    for (int32_t t = 0; t < 3; ++t) {
        for (int32_t c = 0; c < 35; ++c) {
            ASSERT_EQ(out[t * 35 + c], weight_at(table.view(), ids[t], c));
        }
    }
}

TEST_P(Linear, does_nothing_for_no_tokens) {
    const Matrix w = random_matrix(WeightFormat::kBf16, 4, 4, random);
    linear(w.view(), 0, {}, {});
    embed(w.view(), {}, {});
}

K3POD_ON_EVERY_TARGET(Linear);

TEST(LinearDeathTest, refuses_spans_of_another_shape) {
    const Matrix w(WeightFormat::kF32, 2, 3);
    std::vector<float> x(3), y(3);
    EXPECT_DEATH(linear(w.view(), 1, x, y), "y must be");
}

}  // namespace
}  // namespace k3pod::ops

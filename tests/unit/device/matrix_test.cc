#include "k3pod/device/matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace k3pod {
namespace {

bool is_aligned(const std::byte* p) {
    return reinterpret_cast<uintptr_t>(p) % 64 == 0;
}

TEST(Matrix, sizes_follow_the_checkpoint_layouts) {
    EXPECT_EQ(matrix_data_bytes(WeightFormat::kF32, 3, 5), 60);
    EXPECT_EQ(matrix_data_bytes(WeightFormat::kBf16, 3, 5), 30);
    EXPECT_EQ(matrix_scale_bytes(WeightFormat::kBf16, 3, 5), 0);
    // One routed expert of the release: w1 is [3072, 3584].
    EXPECT_EQ(matrix_data_bytes(WeightFormat::kMxfp4, 3072, 3584), 5'505'024);
    EXPECT_EQ(matrix_scale_bytes(WeightFormat::kMxfp4, 3072, 3584), 344'064);
    EXPECT_EQ(matrix_scale_bytes(WeightFormat::kNvfp4, 3072, 3584), 688'128);
    // Ragged tiles count whole: kv_a is [576, 7168], b_proj [96, 7168].
    EXPECT_EQ(matrix_scale_bytes(WeightFormat::kFp8Tile, 576, 7168), 5 * 56 * 4);
    EXPECT_EQ(matrix_scale_bytes(WeightFormat::kFp8Tile, 96, 7168), 56 * 4);
    EXPECT_EQ(matrix_data_bytes(WeightFormat::kFp8Tile, 0, 0), 0);
}

TEST(Matrix, sizes_of_the_largest_matrices_do_not_overflow) {
    EXPECT_EQ(matrix_data_bytes(WeightFormat::kF32, 163'840, 7168), 4'697'620'480);
}

TEST(Matrix, places_aligned_scales_behind_the_data) {
    Matrix m(WeightFormat::kFp8Tile, 5, 7);
    EXPECT_TRUE(is_aligned(m.view().data));
    EXPECT_TRUE(is_aligned(m.view().scales));
    EXPECT_EQ(m.mutable_data().size(), 35u);
    EXPECT_EQ(m.mutable_scales().size(), 4u);
    EXPECT_EQ(m.view().scales - m.view().data, 64);
    EXPECT_EQ(m.mutable_scales().data(), m.view().scales);
    EXPECT_EQ(m.size_bytes(), 68);
}

TEST(Matrix, has_no_scales_where_the_format_has_none) {
    Matrix m(WeightFormat::kBf16, 4, 4);
    EXPECT_EQ(m.view().scales, nullptr);
    EXPECT_TRUE(m.mutable_scales().empty());
}

TEST(Matrix, keeps_its_view_when_moved) {
    Matrix m(WeightFormat::kMxfp4, 2, 32);
    m.set_global_scale(0.5f);
    std::memset(m.mutable_data().data(), 0x21, m.mutable_data().size());
    const std::byte* data = m.view().data;
    const Matrix moved = std::move(m);
    EXPECT_EQ(moved.view().data, data);
    EXPECT_EQ(moved.view().data[31], std::byte{0x21});
    EXPECT_EQ(moved.view().global_scale, 0.5f);
    EXPECT_FALSE(moved.is_empty());
}

TEST(Matrix, is_empty_by_default) {
    EXPECT_TRUE(Matrix().is_empty());
    EXPECT_EQ(HostBuffer(0).size_bytes(), 0);
}

TEST(MatrixDeathTest, refuses_fp4_columns_that_cut_a_scale_block) {
    EXPECT_DEATH(Matrix(WeightFormat::kMxfp4, 1, 48), "multiple of 32");
}

TEST(Matrix, names_every_format) {
    EXPECT_STREQ(weight_format_name(WeightFormat::kF32), "f32");
    EXPECT_STREQ(weight_format_name(WeightFormat::kFp8Tile), "fp8_tile");
    EXPECT_STREQ(weight_format_name(WeightFormat::kNvfp4), "nvfp4");
    EXPECT_STREQ(weight_format_name(WeightFormat::kMxfp4), "mxfp4");
}

}  // namespace
}  // namespace k3pod

#include "k3pod/ops/combine.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace k3pod::ops {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

TEST(Combine, adds_parts_of_either_type_to_the_rows_they_name) {
    const std::vector<float> whole{1, 2, 3, 4, 5, 6};
    const std::vector<Bf16> some{to_bf16(10), to_bf16(20), to_bf16(30), to_bf16(40)};
    const std::vector<uint16_t> rows{2, 0};
    const std::vector<PartialRows> parts{{.f32 = whole}, {.bf16 = some, .rows = rows}};
    std::vector<float> out(6, kPoison);
    combine({.rows = 3, .latent = 2, .parts = parts, .out = out});
    EXPECT_EQ(out, (std::vector<float>{31, 42, 3, 4, 15, 26}));
}

TEST(Combine, leaves_rows_that_no_part_names_at_zero) {
    const std::vector<float> one{7, 8};
    const std::vector<uint16_t> rows{1};
    const std::vector<PartialRows> parts{{.f32 = one, .rows = rows}};
    std::vector<float> out(6, kPoison);
    combine({.rows = 3, .latent = 2, .parts = parts, .out = out});
    EXPECT_EQ(out, (std::vector<float>{0, 0, 7, 8, 0, 0}));
}

TEST(Combine, sums_in_the_order_given) {
    const std::vector<float> large{1e8f}, small{3.0f}, minus{-1e8f};
    const std::vector<PartialRows> small_lost{{.f32 = large}, {.f32 = small}, {.f32 = minus}};
    const std::vector<PartialRows> small_kept{{.f32 = large}, {.f32 = minus}, {.f32 = small}};
    std::vector<float> out(1);
    combine({.rows = 1, .latent = 1, .parts = small_lost, .out = out});
    EXPECT_EQ(out[0], 0.0f);
    combine({.rows = 1, .latent = 1, .parts = small_kept, .out = out});
    EXPECT_EQ(out[0], 3.0f);
}

TEST(CombineDeathTest, refuses_rows_past_the_end) {
    const std::vector<float> one{7};
    const std::vector<uint16_t> rows{3};
    const std::vector<PartialRows> parts{{.f32 = one, .rows = rows}};
    std::vector<float> out(3);
    EXPECT_DEATH(combine({.rows = 3, .latent = 1, .parts = parts, .out = out}), "past the end");
}

}  // namespace
}  // namespace k3pod::ops

#include "k3pod/ops/combine.h"

#include <bit>

#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::poisoned;

class Combine : public EveryTarget {};

TEST_P(Combine, adds_parts_of_either_type_to_the_rows_they_name) {
    const std::vector<float> whole{1, 2, 3, 4, 5, 6};
    const std::vector<Bf16> some{to_bf16(10), to_bf16(20), to_bf16(30), to_bf16(40)};
    const std::vector<uint16_t> rows{0, 2};
    const std::vector<PartialRows> parts{{.f32 = whole}, {.bf16 = some, .rows = rows}};
    auto out = poisoned(6);
    combine({.rows = 3, .latent = 2, .parts = parts, .out = out});
    EXPECT_EQ(out, (std::vector<float>{11, 22, 3, 4, 35, 46}));
}

TEST_P(Combine, leaves_rows_that_no_part_names_at_zero) {
    const std::vector<float> one{7, 8};
    const std::vector<uint16_t> rows{1};
    const std::vector<PartialRows> parts{{.f32 = one, .rows = rows}};
    auto out = poisoned(6);
    combine({.rows = 3, .latent = 2, .parts = parts, .out = out});
    EXPECT_EQ(out, (std::vector<float>{0, 0, 7, 8, 0, 0}));
}

TEST_P(Combine, sums_in_the_order_given) {
    const std::vector<float> large{1e8f}, small{3.0f}, minus{-1e8f};
    const std::vector<PartialRows> small_lost{{.f32 = large}, {.f32 = small}, {.f32 = minus}};
    const std::vector<PartialRows> small_kept{{.f32 = large}, {.f32 = minus}, {.f32 = small}};
    std::vector<float> out(1);
    combine({.rows = 1, .latent = 1, .parts = small_lost, .out = out});
    EXPECT_EQ(out[0], 0.0f);
    combine({.rows = 1, .latent = 1, .parts = small_kept, .out = out});
    EXPECT_EQ(out[0], 3.0f);
}

TEST_P(Combine, adds_any_number_of_parts_over_any_width) {
    for (const int32_t width : {1, 15, 16, 75, 131}) {
        for (const size_t num_parts : {0u, 1u, 8u, 9u, 17u}) {
            const std::vector<float> ones(static_cast<size_t>(2 * width), 1.0f);
            const std::vector<Bf16> twos(static_cast<size_t>(2 * width), to_bf16(2.0f));
            std::vector<PartialRows> parts;
            for (size_t p = 0; p < num_parts; ++p) {
                parts.push_back(p % 2 == 0 ? PartialRows{.f32 = ones} : PartialRows{.bf16 = twos});
            }
            auto out = poisoned(2 * width);
            combine({.rows = 2, .latent = width, .parts = parts, .out = out});
            const auto sum = static_cast<float>(num_parts + num_parts / 2);
            EXPECT_EQ(out, std::vector<float>(static_cast<size_t>(2 * width), sum))
                << num_parts << " parts of width " << width;
        }
    }
}

TEST_P(Combine, gives_zero_for_minus_zero) {
    const std::vector<float> zero{-0.0f};
    const std::vector<PartialRows> parts{{.f32 = zero}};
    auto out = poisoned(1);
    combine({.rows = 1, .latent = 1, .parts = parts, .out = out});
    EXPECT_EQ(std::bit_cast<uint32_t>(out[0]), 0u);
}

K3POD_ON_EVERY_TARGET(Combine);

TEST(CombineDeathTest, refuses_rows_out_of_order) {
    const std::vector<float> two{7, 8};
    const std::vector<uint16_t> rows{1, 1};
    const std::vector<PartialRows> parts{{.f32 = two, .rows = rows}};
    std::vector<float> out(3);
    EXPECT_DEATH(combine({.rows = 3, .latent = 1, .parts = parts, .out = out}), "must ascend");
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

#pragma once
// Experts whose answers can be worked out on paper. Expert e of layer l multiplies the latent by
// 2^(l-1) times 1, 2, 4, 8, -1, -2, -4, -8 for e = 0 to 7; a slice gives its share of that. With
// latents of 0 to 3 and weights of 0.5 and 0.25 every partial sum is exact, also in bf16.

#include <memory>
#include <string>
#include <vector>

#include "k3pod/exchange/exchange.h"
#include "k3pod/model/expert_port.h"
#include "k3pod/placement/placement.h"

namespace k3pod::testing {

inline constexpr wire::FrameLimits kFakeLimits = {
    .latent = 8, .num_layers = 4, .num_experts = 8, .top_k = 2, .max_rows = 6};
inline constexpr int32_t kFakeFirstLayer = 1;
inline constexpr int32_t kFakeWidth = 128;

// Every expert of layers 1 to 3 on these holders: whole, expert e at holder e mod n, or sliced
// evenly (1, 2 or 4 holders).
Placement fake_placement(std::vector<std::string> holders, bool is_sliced);

// The work of one holder. kNotFound for an expert that it does not hold.
FrameWork fake_experts(const Placement& placement, size_t holder);

// Rows of one step with their memory.
struct FakeStep {
    uint64_t step = 0;
    int32_t layer = kFakeFirstLayer;
    std::vector<float> latents{};  // [R, 8]
    std::vector<uint16_t> experts{};
    std::vector<float> weights{};

    RoutedRows rows() const;
};

// Latent c of row r is (r + c) mod 4; picks[r] are its experts, with weights 0.5 and 0.25.
FakeStep fake_step(const std::vector<std::vector<uint16_t>>& picks, uint64_t step = 1,
                   int32_t layer = kFakeFirstLayer);
// Random picks and latents, by seed.
FakeStep random_fake_step(uint32_t seed, int32_t rows, uint64_t step, int32_t layer);
// What any port must answer: [R, 8].
std::vector<float> expected_sum(const FakeStep& step);

}  // namespace k3pod::testing

#include "tests/support/fake_experts.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace k3pod::testing {
namespace {

float share_of(const Placement& placement, size_t holder, int32_t layer, int32_t expert) {
    int32_t columns = 0;
    for (const PlacedSlice& slice : placement.of(layer, expert)) {
        if (static_cast<size_t>(slice.holder) == holder) columns += slice.end - slice.begin;
    }
    return static_cast<float>(columns) / static_cast<float>(placement.width);
}

float factor_of(int32_t layer, int32_t expert) {
    const float size = std::ldexp(1.0f, layer - 1 + expert % 4);
    return expert < 4 ? size : -size;
}

}  // namespace

Placement fake_placement(std::vector<std::string> holders, bool is_sliced) {
    Placement placement;
    placement.epoch = 5;
    placement.first_layer = kFakeFirstLayer;
    placement.num_layers = kFakeLimits.num_layers - kFakeFirstLayer;
    placement.num_experts = kFakeLimits.num_experts;
    placement.width = kFakeWidth;
    const auto num_holders = static_cast<int32_t>(holders.size());
    placement.holders = std::move(holders);
    const int32_t columns = kFakeWidth / num_holders;
    for (int32_t i = 0; i < placement.num_layers * placement.num_experts; ++i) {
        std::vector<PlacedSlice> slices;
        if (is_sliced) {
            for (int32_t h = 0; h < num_holders; ++h) {
                slices.push_back({.begin = h * columns, .end = (h + 1) * columns, .holder = h});
            }
        } else {
            slices.push_back(
                {.begin = 0, .end = kFakeWidth, .holder = i % placement.num_experts % num_holders});
        }
        placement.slices.push_back(std::move(slices));
    }
    return placement;
}

FrameWork fake_experts(const Placement& placement, size_t holder) {
    return [placement, holder](int32_t layer, int32_t rows, std::span<const Bf16> latents,
                               std::span<const wire::WireEntry> entries, std::span<float> out) {
        std::ranges::fill(out, 0.0f);
        const size_t width = latents.size() / static_cast<size_t>(rows);
        for (const wire::WireEntry& entry : entries) {
            const float share = share_of(placement, holder, layer, entry.expert);
            if (share == 0) return not_found("fake: expert is not held");
            const float factor = entry.weight * share * factor_of(layer, entry.expert);
            for (size_t c = 0; c < width; ++c) {
                out[entry.row * width + c] += factor * to_f32(latents[entry.row * width + c]);
            }
        }
        return Status::ok();
    };
}

RoutedRows FakeStep::rows() const {
    return {.step = step,
            .layer = layer,
            .rows = static_cast<int32_t>(latents.size()) / kFakeLimits.latent,
            .latent = kFakeLimits.latent,
            .top_k = kFakeLimits.top_k,
            .latents = latents,
            .experts = experts,
            .weights = weights};
}

FakeStep fake_step(const std::vector<std::vector<uint16_t>>& picks, uint64_t step, int32_t layer) {
    FakeStep made{.step = step, .layer = layer};
    for (size_t r = 0; r < picks.size(); ++r) {
        for (int32_t c = 0; c < kFakeLimits.latent; ++c) {
            made.latents.push_back(static_cast<float>((static_cast<int32_t>(r) + c) % 4));
        }
        made.experts.insert(made.experts.end(), picks[r].begin(), picks[r].end());
        made.weights.insert(made.weights.end(), {0.5f, 0.25f});
    }
    return made;
}

FakeStep random_fake_step(uint32_t seed, int32_t rows, uint64_t step, int32_t layer) {
    std::minstd_rand random(seed);
    FakeStep made{.step = step, .layer = layer};
    for (int32_t r = 0; r < rows; ++r) {
        for (int32_t c = 0; c < kFakeLimits.latent; ++c) {
            made.latents.push_back(static_cast<float>(random() % 4));
        }
        const auto first = static_cast<uint16_t>(random() % 8);
        const auto second = static_cast<uint16_t>((first + 1 + random() % 7) % 8);
        made.experts.insert(made.experts.end(), {first, second});
        made.weights.insert(made.weights.end(), {0.5f, 0.25f});
    }
    return made;
}

std::vector<float> expected_sum(const FakeStep& step) {
    std::vector<float> sum(step.latents.size());
    for (size_t i = 0; i < sum.size(); ++i) {
        const size_t row = i / static_cast<size_t>(kFakeLimits.latent);
        for (size_t k = 2 * row; k < 2 * row + 2; ++k) {
            sum[i] += step.weights[k] * factor_of(step.layer, step.experts[k]) * step.latents[i];
        }
    }
    return sum;
}

}  // namespace k3pod::testing

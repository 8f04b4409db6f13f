#include "replicate.h"

#include <algorithm>
#include <numeric>

namespace k3pod {
namespace {

// One layer's experts, those first whose copy helps most.
std::vector<int32_t> by_need(const Placement& placement, const PlacementProblem& problem,
                             const StepTimes& times, int32_t layer_idx) {
    const std::span<const double> chance = problem.popularity.of_layer(layer_idx);
    const auto key = [&](int32_t expert) {
        const auto slices = placement.of(placement.first_layer + layer_idx, expert);
        const auto holder = static_cast<size_t>(slices.front().holder);
        return std::pair(times.holder_s[holder], chance[static_cast<size_t>(expert)]);
    };
    std::vector<int32_t> experts(static_cast<size_t>(placement.num_experts));
    std::iota(experts.begin(), experts.end(), 0);
    std::stable_sort(experts.begin(), experts.end(),
                     [&](int32_t a, int32_t b) { return key(a) > key(b); });
    return experts;
}

// The holder with room that is done first, other than `holder`; -1 when there is none.
int32_t receiver(const StepTimes& times, std::span<const int64_t> spare, int32_t holder) {
    int32_t best = -1;
    for (size_t h = 0; h < spare.size(); ++h) {
        if (spare[h] <= 0 || static_cast<int32_t>(h) == holder) continue;
        if (best < 0 || times.holder_s[h] < times.holder_s[static_cast<size_t>(best)]) {
            best = static_cast<int32_t>(h);
        }
    }
    return best;
}

}  // namespace

std::vector<Replica> fill_spare_room(const Placement& placement, const PlacementProblem& problem,
                                     const StepTimes& times,
                                     std::span<const int64_t> spare_experts) {
    std::vector<int64_t> spare(spare_experts.begin(), spare_experts.end());
    std::vector<Replica> replicas;
    std::vector<std::vector<int32_t>> needy;
    for (int32_t layer = 0; layer < placement.num_layers; ++layer) {
        needy.push_back(by_need(placement, problem, times, layer));
    }
    for (size_t place = 0; place < static_cast<size_t>(placement.num_experts); ++place) {
        for (int32_t layer_idx = 0; layer_idx < placement.num_layers; ++layer_idx) {
            const int32_t layer = placement.first_layer + layer_idx;
            const int32_t expert = needy[static_cast<size_t>(layer_idx)][place];
            const int32_t to = receiver(times, spare, placement.of(layer, expert).front().holder);
            if (to < 0) continue;
            replicas.push_back({layer, expert, {{0, placement.width, to}}});
            --spare[static_cast<size_t>(to)];
        }
    }
    std::sort(replicas.begin(), replicas.end(), [](const Replica& a, const Replica& b) {
        return std::pair(a.layer, a.expert) < std::pair(b.layer, b.expert);
    });
    return replicas;
}

}  // namespace k3pod

#include "k3pod/placement/popularity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace k3pod {
namespace {

Status check_model(const PickTrace& trace, const PickTrace& model) {
    const struct {
        const char* name;
        int32_t found, expected;
    } fields[] = {{"first_layer", trace.first_layer, model.first_layer},
                  {"num_layers", trace.num_layers, model.num_layers},
                  {"num_experts", trace.num_experts, model.num_experts}};
    for (const auto& [name, found, expected] : fields) {
        if (found == expected) continue;
        return invalid_argument(
            fmt::format("trace: {}: found {}, the model has {}: it was taken of another model",
                        name, found, expected));
    }
    return Status::ok();
}

Status check_sums(const PickTrace& trace, int32_t top_k) {
    const auto num_experts = static_cast<ptrdiff_t>(trace.num_experts);
    for (int32_t layer = 0; layer < trace.num_layers; ++layer) {
        const auto begin = trace.picks.begin() + layer * num_experts;
        const int64_t sum = std::accumulate(begin, begin + num_experts, int64_t{0});
        if (sum == trace.tokens * top_k) continue;
        return invalid_argument(fmt::format(
            "trace: layer {}: {} picks of {} tokens, expected {}: the model picks {} experts for "
            "each",
            trace.first_layer + layer, sum, trace.tokens, trace.tokens * top_k, top_k));
    }
    return Status::ok();
}

}  // namespace

Popularity uniform_popularity(int32_t num_layers, int32_t num_experts, int32_t top_k) {
    const auto size = static_cast<size_t>(int64_t{num_layers} * num_experts);
    return {.num_layers = num_layers,
            .num_experts = num_experts,
            .top_k = top_k,
            .chance = std::vector<double>(size, static_cast<double>(top_k) / num_experts),
            .is_uniform = true};
}

Result<Popularity> popularity_of(std::span<const PickTrace> traces, int32_t first_layer,
                                 int32_t num_layers, int32_t num_experts, int32_t top_k) {
    constexpr double kUnseenPicks = 0.5;
    Popularity popularity = uniform_popularity(num_layers, num_experts, top_k);
    if (traces.empty()) return popularity;
    const PickTrace model{.first_layer = first_layer,
                          .num_layers = num_layers,
                          .num_experts = num_experts,
                          .picks = {}};
    std::vector<double> picks(popularity.chance.size(), kUnseenPicks);
    int64_t tokens = 0;
    for (const PickTrace& trace : traces) {
        K3POD_TRY(check_model(trace, model));
        K3POD_TRY(check_sums(trace, top_k));
        tokens += trace.tokens;
        for (size_t i = 0; i < picks.size(); ++i) picks[i] += static_cast<double>(trace.picks[i]);
    }
    const double layer_picks =
        static_cast<double>(tokens) * top_k + kUnseenPicks * static_cast<double>(num_experts);
    for (size_t i = 0; i < picks.size(); ++i) {
        popularity.chance[i] = std::min(1.0, picks[i] * top_k / layer_picks);
    }
    popularity.is_uniform = std::all_of(picks.begin(), picks.end(),
                                        [&](double count) { return count == picks.front(); });
    return popularity;
}

}  // namespace k3pod

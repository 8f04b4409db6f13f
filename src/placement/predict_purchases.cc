#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "check_predict.h"
#include "k3pod/placement/predict.h"
#include "move_experts.h"

namespace k3pod {
namespace {

constexpr int kMoreServers = 4;
constexpr int64_t kMemorySteps[] = {8, 32};  // GiB
constexpr int64_t kGiB = int64_t{1} << 30;

// The pod as it would be.
struct Extended {
    Placement placement;
    std::vector<PredictHolder> holders;
};

std::vector<int64_t> columns_held(const Placement& placement) {
    std::vector<int64_t> columns(placement.holders.size(), 0);
    for (const auto& slices : placement.slices) {
        for (const PlacedSlice& slice : slices) {
            columns[static_cast<size_t>(slice.holder)] += slice.end - slice.begin;
        }
    }
    return columns;
}

std::optional<size_t> fullest_server(const Extended& pod) {
    const std::vector<int64_t> columns = columns_held(pod.placement);
    std::optional<size_t> fullest;
    for (size_t h = 0; h < columns.size(); ++h) {
        if (pod.holders[h].kind != HolderKind::kServer) continue;
        if (!fullest || columns[h] > columns[*fullest]) fullest = h;
    }
    return fullest;
}

std::vector<HolderPace> paces_of(const PredictInput& input, const Extended& pod) {
    std::vector<HolderPace> paces;
    for (const PredictHolder& holder : pod.holders) {
        HolderPace pace;
        switch (holder.kind) {
            case HolderKind::kStation:
                pace.fixed_s = input.constants.shared_experts.value;
                break;
            case HolderKind::kStationHost:
                break;
            case HolderKind::kServer:
                pace.fixed_s = input.constants.round_trip.value;
                break;
        }
        pace.seconds_per_column =
            static_cast<double>(input.model.bytes_per_column) / holder.bandwidth;
        paces.push_back(pace);
    }
    return paces;
}

void move_to(Extended& pod, const PredictInput& input, const Workload& workload, size_t target,
             int64_t max_columns) {
    move_experts(pod.placement, input.popularity, workload.rows(), static_cast<int32_t>(target),
                 max_columns, paces_of(input, pod));
}

void add_server(Extended& pod, const PredictInput& input, const Workload& workload, size_t like) {
    const int64_t room = columns_held(pod.placement)[like];
    PredictHolder further = pod.holders[like];
    further.name = fmt::format("further server {}", pod.holders.size());
    pod.holders.push_back(further);
    pod.placement.holders.push_back(further.name);
    move_to(pod, input, workload, pod.holders.size() - 1, room);
}

Result<Purchase> price(std::string what, const Extended& pod, const PredictInput& input,
                       const Workload& workload) {
    K3POD_ASSIGN(const Prediction prediction, predict({input.model, pod.placement, pod.holders,
                                                       input.popularity, input.constants},
                                                      workload));
    return Purchase{std::move(what), prediction.tokens_per_s, prediction.prefill_tokens_per_s};
}

}  // namespace

Result<std::vector<Purchase>> predict_purchases(const PredictInput& input,
                                                const Workload& workload) {
    K3POD_TRY(check_predict(input, workload));
    const Extended today{input.placement, {input.holders.begin(), input.holders.end()}};
    std::vector<Purchase> purchases;
    if (const auto like = fullest_server(today)) {
        Extended pod = today;
        for (int more = 1; more <= kMoreServers; ++more) {
            add_server(pod, input, workload, *like);
            K3POD_ASSIGN(Purchase purchase,
                         price(fmt::format("{} more expert server{}", more, more == 1 ? "" : "s"),
                               pod, input, workload));
            purchases.push_back(std::move(purchase));
        }
    }
    const auto station = std::find_if(
        today.holders.begin(), today.holders.end(),
        [](const PredictHolder& holder) { return holder.kind == HolderKind::kStation; });
    if (station == today.holders.end()) return purchases;
    for (const int64_t more : kMemorySteps) {
        Extended pod = today;
        move_to(pod, input, workload, static_cast<size_t>(station - today.holders.begin()),
                more * kGiB / input.model.bytes_per_column);
        K3POD_ASSIGN(Purchase purchase, price(fmt::format("{} GiB more of {}", more, station->name),
                                              pod, input, workload));
        purchases.push_back(std::move(purchase));
    }
    return purchases;
}

}  // namespace k3pod

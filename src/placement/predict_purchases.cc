#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "check_predict.h"
#include "k3pod/placement/predict.h"
#include "k3pod/placement/solver.h"
#include "move_experts.h"
#include "step_model.h"

namespace k3pod {
namespace {

constexpr int kMoreServers = 4;
constexpr int64_t kMemorySteps[] = {8, 32};  // GiB
constexpr int64_t kGiB = int64_t{1} << 30;

// The pod as it would be.
struct Extended {
    Placement placement;
    std::vector<PredictHolder> holders;
    std::vector<int64_t> room;  // [holders]: columns that each may hold
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

// Experts moved onto the holder from whoever is last, the others left where they are.
Placement moved(const PredictInput& input, const Extended& pod, const Workload& workload,
                size_t target) {
    Placement placement = pod.placement;
    const int64_t free_columns = pod.room[target] - columns_held(placement)[target];
    move_experts(placement, input.popularity, workload.rows(), static_cast<int32_t>(target),
                 free_columns, paces_of(input, pod));
    return placement;
}

Result<Placement> planned_anew(const PredictInput& input, const Extended& pod,
                               const Workload& workload) {
    PlacementProblem problem;
    problem.shape.first_layer = pod.placement.first_layer;
    problem.shape.num_layers = pod.placement.num_layers;
    problem.shape.num_experts = pod.placement.num_experts;
    problem.shape.width = pod.placement.width;
    problem.shape.bytes_per_column = input.model.bytes_per_column;
    problem.popularity = input.popularity;
    problem.batch_tokens = workload.rows();
    for (size_t h = 0; h < pod.holders.size(); ++h) {
        problem.holders.push_back({pod.holders[h].name, pod.room[h] * input.model.bytes_per_column,
                                   pod.holders[h].bandwidth});
    }
    K3POD_ASSIGN(Plan plan, solve_placement(problem, ModeRequest::kAuto, pod.placement.epoch));
    return std::move(plan.placement);
}

// The better of both ways, and of leaving the new room empty.
Result<Purchase> price(std::string what, Extended& pod, const PredictInput& input,
                       const Workload& workload, size_t target) {
    std::vector<Placement> candidates{pod.placement, moved(input, pod, workload, target)};
    auto solved = planned_anew(input, pod, workload);
    if (solved && solved->holders == pod.placement.holders) {
        candidates.push_back(std::move(*solved));
    }
    double best_s = 0;
    for (Placement& candidate : candidates) {
        const PredictInput with{input.model, candidate, pod.holders, input.popularity,
                                input.constants};
        const double step_s = StepModel(with).overlapped(decode_rows(workload)).total_s;
        if (best_s > 0 && step_s >= best_s) continue;
        best_s = step_s;
        pod.placement = std::move(candidate);
    }
    K3POD_ASSIGN(const Prediction prediction, predict({input.model, pod.placement, pod.holders,
                                                       input.popularity, input.constants},
                                                      workload));
    return Purchase{std::move(what), prediction.tokens_per_s, prediction.prefill_tokens_per_s};
}

// Like the fullest server of the pod as it is, without experts yet.
void add_server(Extended& pod, size_t like) {
    PredictHolder further = pod.holders[like];
    further.name = fmt::format("further server {}", pod.holders.size());
    pod.holders.push_back(further);
    pod.placement.holders.push_back(further.name);
    pod.room.push_back(pod.room[like]);
}

}  // namespace

Result<std::vector<Purchase>> predict_purchases(const PredictInput& input,
                                                const Workload& workload) {
    K3POD_TRY(check_predict(input, workload));
    const Extended today{input.placement,
                         {input.holders.begin(), input.holders.end()},
                         columns_held(input.placement)};
    std::vector<Purchase> purchases;
    if (const auto like = fullest_server(today)) {
        Extended pod = today;
        for (int more = 1; more <= kMoreServers; ++more) {
            add_server(pod, *like);
            K3POD_ASSIGN(Purchase purchase,
                         price(fmt::format("{} more expert server{}", more, more == 1 ? "" : "s"),
                               pod, input, workload, pod.holders.size() - 1));
            purchases.push_back(std::move(purchase));
        }
    }
    const auto station = std::find_if(
        today.holders.begin(), today.holders.end(),
        [](const PredictHolder& holder) { return holder.kind == HolderKind::kStation; });
    if (station == today.holders.end()) return purchases;
    const auto target = static_cast<size_t>(station - today.holders.begin());
    for (const int64_t more : kMemorySteps) {
        Extended pod = today;
        pod.room[target] += more * kGiB / input.model.bytes_per_column;
        K3POD_ASSIGN(Purchase purchase, price(fmt::format("{} GiB more of {}", more, station->name),
                                              pod, input, workload, target));
        purchases.push_back(std::move(purchase));
    }
    return purchases;
}

}  // namespace k3pod

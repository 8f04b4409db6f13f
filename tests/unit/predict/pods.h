#pragma once
// Pods to predict: Kimi-K3 on eight servers, and one small enough to reckon by hand.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "k3pod/placement/predict.h"

namespace k3pod::testing {

struct PredictedPod {
    PredictModel model;
    Placement placement;
    std::vector<PredictHolder> holders;
    Popularity popularity;
    PredictConstants constants;

    PredictInput input() const { return {model, placement, holders, popularity, constants}; }
    Result<Prediction> run(const Workload& workload = {}) const {
        return predict(input(), workload);
    }
    PredictedStep step(const Workload& workload = {}) const {
        auto prediction = run(workload);
        EXPECT_TRUE(prediction) << prediction.status().to_string();
        return prediction ? prediction->step : PredictedStep{};
    }
};

// Nothing takes any time but what a test sets.
inline PredictConstants free_constants() {
    PredictConstants c;
    for (Constant* rate : {&c.compute, &c.hbm_bandwidth, &c.host_bandwidth, &c.server_bandwidth,
                           &c.server_compute, &c.server_link, &c.station_link}) {
        *rate = {1e18, "free"};
    }
    return c;
}

inline Placement placed(const PlacementShape& shape, const std::vector<PredictHolder>& holders,
                        PlacementMode mode) {
    std::vector<HolderBudget> budgets;
    for (const PredictHolder& holder : holders) budgets.push_back({holder.name, int64_t{1} << 50});
    return place_evenly(shape, budgets, mode, 1).value();
}

// Kimi-K3 in the NVFP4 release's format on `num_servers` servers that read `bandwidth` bytes/s.
inline PredictedPod k3_pod(int num_servers, double bandwidth, PlacementMode mode) {
    PredictedPod pod;
    pod.model.num_kda_layers = 69;
    pod.model.num_mla_layers = 24;
    pod.model.num_dense_layers = 1;
    pod.model.bytes_per_column = 6048;
    pod.model.request_row_bytes = pod.model.reply_row_bytes = 7168;
    for (int i = 0; i < num_servers; ++i) {
        pod.holders.push_back(
            {"spark-" + std::to_string(i + 1), HolderKind::kServer, bandwidth, 1e18});
    }
    PlacementShape shape;
    shape.first_layer = 1;
    shape.num_layers = 92;
    shape.num_experts = 896;
    shape.width = 3072;
    shape.bytes_per_column = pod.model.bytes_per_column;
    pod.placement = placed(shape, pod.holders, mode);
    pod.popularity = uniform_popularity(92, 896, 16);
    pod.constants = free_constants();
    return pod;
}

// Ten layers with 64 columns a layer, all of which every token reads: two experts of width 32, both
// picked, 1,000 bytes a column. Two holders of one expert each.
inline PredictedPod small_pod(HolderKind first, HolderKind second, double bandwidth) {
    PredictedPod pod;
    pod.model.num_kda_layers = 10;
    pod.model.bytes_per_column = 1000;
    pod.model.request_row_bytes = pod.model.reply_row_bytes = 1000;
    pod.holders = {{"first", first, bandwidth, 1e18}, {"second", second, bandwidth, 1e18}};
    PlacementShape shape;
    shape.num_layers = 10;
    shape.num_experts = 2;
    shape.width = 32;
    shape.bytes_per_column = 1000;
    pod.placement = placed(shape, pod.holders, PlacementMode::kWhole);
    pod.popularity = uniform_popularity(10, 2, 2);
    pod.constants = free_constants();
    return pod;
}

}  // namespace k3pod::testing

// Kimi-K3 on Sparks: figures that others reckoned, and what holds for every pod.

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "tests/unit/predict/pods.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;

// A published budget: trunk of 79 GB at 7.1 TB/s, then all experts on eight Sparks at 208 GB/s, 92
// exchanges of 30 us, nothing in parallel; 55 % of the picks are those of the token before.
PredictedPod budget_pod(PlacementMode mode) {
    PredictedPod pod = k3_pod(8, 208e9, mode);
    pod.constants.head.value = 79e9 / 7.1e12;
    pod.constants.round_trip.value = 30e-6;
    pod.constants.pick_reuse.value = 0.55;
    return pod;
}

struct Width {
    int32_t drafts;
    double tokens_per_step;
    double whole, sliced;  // tokens per second
};
constexpr Width kWidths[] = {
    {0, 1, 20.7, 32.9}, {1, 1.75, 29.9, 46.5}, {3, 2.6, 33.1, 49.8}, {7, 3.3, 28.9, 41.0}};

TEST(PredictK3, agrees_with_a_published_budget_at_every_verify_width) {
    for (const Width& width : kWidths) {
        Workload workload;
        workload.drafts = width.drafts;
        if (width.drafts > 0) workload.acceptance = (width.tokens_per_step - 1) / width.drafts;
        const auto whole = budget_pod(PlacementMode::kWhole).run(workload);
        const auto sliced = budget_pod(PlacementMode::kSliced).run(workload);
        ASSERT_TRUE(whole && sliced);
        EXPECT_NEAR(whole->tokens_per_s, width.whole, 0.03 * width.whole) << width.drafts;
        EXPECT_NEAR(sliced->tokens_per_s, width.sliced, 0.03 * width.sliced) << width.drafts;
    }
}

TEST(PredictK3, the_busiest_of_eight_servers_has_twice_the_mean_of_whole_experts) {
    const PredictedStep whole = k3_pod(8, 208e9, PlacementMode::kWhole).step();
    const PredictedStep sliced = k3_pod(8, 208e9, PlacementMode::kSliced).step();
    EXPECT_NEAR(whole.wait_s / sliced.wait_s, 4.18 / 2, 0.03);
    EXPECT_LT(whole.error_s, 0.002 * whole.total_s);
    EXPECT_NEAR(sliced.error_s, 0, 1e-9);
}

TEST(PredictK3, a_step_reads_sixteen_experts_a_layer) {
    const PredictedStep step = k3_pod(8, 208e9, PlacementMode::kWhole).step();
    double bytes = 0;
    for (const PredictedHolder& holder : step.holders) bytes += holder.bytes;
    EXPECT_NEAR(bytes, 27.35e9, 0.01e9);
}

TEST(PredictK3, sequences_of_their_own_read_as_many_experts_as_chance_has_it) {
    Workload workload;
    workload.sequences = 16;
    double bytes = 0;
    for (const PredictedHolder& holder :
         k3_pod(8, 208e9, PlacementMode::kSliced).step(workload).holders) {
        bytes += holder.bytes;
    }
    EXPECT_NEAR(bytes, 383.6e9, 2e9);  // 896 (1 - (55/56)^16) experts in each of 92 layers
}

TEST(PredictK3, sixteen_sparks_as_one_tensor_parallel_group_are_bound_to_75_tokens_a_second) {
    // 104 G active parameters at 4.5 bits, 273 GB/s a Spark.
    EXPECT_NEAR(tensor_parallel_bound(104e9 * 4.5 / 8, 16, 273e9), 75, 0.5);
}

TEST(PredictK3, hot_experts_on_the_fast_tier_shorten_the_step) {
    PredictedPod pod = k3_pod(2, 208e9, PlacementMode::kWhole);
    pod.holders[1].bandwidth = 20e9;
    std::vector<PickTrace> traces(1);
    traces[0] = {1, 92, 896, 896, std::vector<int64_t>(92 * 896, 0)};
    for (size_t i = 0; i < traces[0].picks.size(); ++i) {
        // In each layer the even experts of the first 32 are picked by every token.
        traces[0].picks[i] = i % 896 < 32 && i % 2 == 0 ? 896 : 0;
    }
    pod.popularity = popularity_of(traces, 1, 92, 896, 16).value();
    const auto put_even_on = [&](int32_t holder) {
        for (size_t i = 0; i < pod.placement.slices.size(); ++i) {
            pod.placement.slices[i][0].holder = i % 2 == 0 ? holder : 1 - holder;
        }
        return pod.step().total_s;
    };
    EXPECT_LT(put_even_on(0), 0.3 * put_even_on(1));
}

TEST(PredictK3, the_same_arguments_give_the_same_prediction) {
    const PredictedPod pod = budget_pod(PlacementMode::kWhole);
    EXPECT_EQ(pod.step().total_s, pod.step().total_s);
    EXPECT_EQ(pod.run()->prefill_tokens_per_s, pod.run()->prefill_tokens_per_s);
}

TEST(PredictK3, for_any_pod_the_parts_add_up_and_more_bandwidth_never_hurts) {
    const uint32_t seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto between = [&](double low, double high) {
        return low * std::pow(high / low, std::uniform_real_distribution<>(0, 1)(random));
    };
    for (int round = 0; round < 6; ++round) {
        const int num_servers = 1 + static_cast<int>(random() % 9);
        PredictedPod pod = k3_pod(
            num_servers, 200e9, random() % 2 == 0 ? PlacementMode::kWhole : PlacementMode::kSliced);
        pod.constants = default_predict_constants();
        for (PredictHolder& holder : pod.holders) {
            holder.bandwidth = between(1e9, 1e13);
            holder.kind = static_cast<HolderKind>(random() % 3);
        }
        Workload workload;
        workload.sequences = 1 + static_cast<int32_t>(random() % 8);
        const PredictedStep step = pod.step(workload);
        EXPECT_NEAR(step.total_s, step.serial_s() + step.shared_s + step.local_s + step.wait_s,
                    1e-12);
        double last = step.station_last_share;
        for (const PredictedHolder& holder : step.holders) {
            EXPECT_GE(holder.slack_s, -1e-12) << holder.name;
            EXPECT_LE(holder.busy_s + holder.exchange_s + holder.slack_s,
                      step.shared_s + step.local_s + step.wait_s + 1e-9)
                << holder.name;
            last += holder.last_share;
        }
        EXPECT_NEAR(last, 1, 1e-9);
        for (PredictHolder& holder : pod.holders) holder.bandwidth *= 1.5;
        EXPECT_LE(pod.step(workload).total_s, step.total_s);
    }
}

TEST(PredictK3, more_servers_and_more_memory_make_the_pod_faster) {
    PredictedPod pod = k3_pod(8, 208e9, PlacementMode::kSliced);
    pod.constants = default_predict_constants();
    pod.holders.push_back({"station.host", HolderKind::kStationHost, 345e9, 1e18});
    pod.holders.push_back({"station.hbm", HolderKind::kStation, 6.5e12, 1e18});
    pod.placement.holders = {"spark-1", "spark-2", "spark-3", "spark-4",      "spark-5",
                             "spark-6", "spark-7", "spark-8", "station.host", "station.hbm"};
    for (size_t i = 0; i < pod.placement.slices.size(); ++i) {
        if (i % 10 < 3) pod.placement.slices[i] = {{0, 3072, 8}};
        if (i % 10 == 3) pod.placement.slices[i] = {{0, 3072, 9}};
    }
    const auto today = pod.run();
    const auto purchases = predict_purchases(pod.input(), {});
    ASSERT_TRUE(today && purchases);
    ASSERT_EQ(purchases->size(), 6u);
    EXPECT_EQ((*purchases)[0].what, "1 more expert server");
    EXPECT_EQ((*purchases)[3].what, "4 more expert servers");
    EXPECT_EQ((*purchases)[4].what, "8 GiB more of station.hbm");
    EXPECT_GT((*purchases)[0].tokens_per_s, 1.05 * today->tokens_per_s);
    EXPECT_GE((*purchases)[1].tokens_per_s, (*purchases)[0].tokens_per_s);
    EXPECT_GT((*purchases)[4].tokens_per_s, today->tokens_per_s);
    EXPECT_GT((*purchases)[5].tokens_per_s, (*purchases)[4].tokens_per_s);
}

struct Refusal {
    const char* expected;
    void (*spoil)(PredictedPod&, Workload&);
};

TEST(PredictK3, arguments_that_do_not_belong_together_are_refused) {
    const Refusal refusals[] = {
        {"the batch is 0, expected 1 to 1024", [](PredictedPod&, Workload& w) { w.sequences = 0; }},
        {"the number of drafts is 65", [](PredictedPod&, Workload& w) { w.drafts = 65; }},
        {"the acceptance is 1.5", [](PredictedPod&, Workload& w) { w.acceptance = 1.5; }},
        {"the acceptance is nan", [](PredictedPod&, Workload& w) { w.acceptance = std::nan(""); }},
        {"the context is -1", [](PredictedPod&, Workload& w) { w.context = -1; }},
        {"the prefill chunk is 0", [](PredictedPod&, Workload& w) { w.chunk_tokens = 0; }},
        {"1 holders are described, the placement has 2",
         [](PredictedPod& p, Workload&) { p.holders.pop_back(); }},
        {"holder 1 is described as other, the placement says second",
         [](PredictedPod& p, Workload&) { p.holders[1].name = "other"; }},
        {"first reads 0 bytes/s", [](PredictedPod& p, Workload&) { p.holders[0].bandwidth = 0; }},
        {"the popularity is of 92 layers of 896 experts, the placement has 10 of 2",
         [](PredictedPod& p, Workload&) { p.popularity = uniform_popularity(92, 896, 16); }},
        {"the number of layers with attention is 11, expected 10",
         [](PredictedPod& p, Workload&) { p.model.num_mla_layers = 1; }},
        {"the placement has 19 experts for 10 layers of 2",
         [](PredictedPod& p, Workload&) { p.placement.slices.pop_back(); }},
    };
    for (const Refusal& refusal : refusals) {
        PredictedPod pod = small_pod(HolderKind::kServer, HolderKind::kServer, 1e9);
        Workload workload;
        refusal.spoil(pod, workload);
        const auto prediction = pod.run(workload);
        ASSERT_FALSE(prediction) << refusal.expected;
        EXPECT_EQ(prediction.status().code(), Code::kInvalidArgument);
        EXPECT_THAT(prediction.status().message(), HasSubstr(refusal.expected));
        EXPECT_FALSE(predict_purchases(pod.input(), workload));
    }
}

}  // namespace
}  // namespace k3pod::testing

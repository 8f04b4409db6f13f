// The parts of a step on pods that can be reckoned by hand.

#include <gmock/gmock.h>

#include "tests/unit/predict/pods.h"

namespace k3pod::testing {
namespace {

constexpr double kUs = 1e-6;
constexpr double kTiny = 1e-12;

PredictedPod two_servers() {
    // 32 columns of 1,000 bytes at 320 MB/s: 100 us a layer on each.
    return small_pod(HolderKind::kServer, HolderKind::kServer, 320e6);
}

TEST(PredictStep, the_estimates_of_the_station_add_up_to_its_own_estimate) {
    PredictedPod pod = k3_pod(8, 1e18, PlacementMode::kSliced);
    pod.constants = default_predict_constants();
    pod.constants.round_trip.value = 0;
    const PredictedStep step = pod.step();
    EXPECT_NEAR(step.total_s, 13.1e-3, 0.1e-3);  // fused kernels on a GB300, 4k of context
    EXPECT_NEAR(step.shared_s, 92 * 42.2 * kUs, kTiny);
    EXPECT_NEAR(step.wait_s, 0, kTiny);
}

TEST(PredictStep, experts_hide_under_the_shared_experts_while_they_are_shorter) {
    PredictedPod pod = two_servers();
    pod.constants.round_trip.value = 20 * kUs;
    pod.constants.shared_experts.value = 150 * kUs;
    EXPECT_NEAR(pod.step().total_s, 10 * 150 * kUs, kTiny);
    EXPECT_NEAR(pod.step().wait_s, 0, kTiny);
    EXPECT_NEAR(pod.step().holders[0].slack_s, 10 * 30 * kUs, kTiny);
    EXPECT_DOUBLE_EQ(pod.step().station_last_share, 1);
    pod.constants.shared_experts.value = 50 * kUs;
    EXPECT_NEAR(pod.step().total_s, 10 * 120 * kUs, kTiny);
    EXPECT_NEAR(pod.step().wait_s, 10 * 70 * kUs, kTiny);
    EXPECT_DOUBLE_EQ(pod.step().station_last_share, 0);
}

TEST(PredictStep, what_is_before_and_after_the_experts_is_never_hidden) {
    PredictedPod pod = two_servers();
    PredictConstants& c = pod.constants;
    c.kda_attention.value = 40 * kUs;
    c.moe_front.value = 30 * kUs;
    c.shared_experts.value = 10 * kUs;
    c.moe_tail.value = 5 * kUs;
    c.head.value = 7 * kUs;
    const PredictedStep step = pod.step();
    EXPECT_NEAR(step.attention_s, 400 * kUs, kTiny);
    EXPECT_NEAR(step.moe_front_s, 300 * kUs, kTiny);
    EXPECT_NEAR(step.moe_tail_s, 50 * kUs, kTiny);
    EXPECT_NEAR(step.head_s, 7 * kUs, kTiny);
    EXPECT_NEAR(step.total_s, (400 + 300 + 50 + 7 + 10 * 100) * kUs, kTiny);
}

TEST(PredictStep, the_stations_main_memory_comes_after_the_shared_experts) {
    PredictedPod pod = small_pod(HolderKind::kStation, HolderKind::kServer, 320e6);
    pod.constants.shared_experts.value = 50 * kUs;
    const PredictedStep step = pod.step();
    EXPECT_NEAR(step.local_s, 10 * 100 * kUs, kTiny);
    EXPECT_NEAR(step.total_s, 10 * 150 * kUs, kTiny);
    EXPECT_NEAR(step.wait_s, 0, kTiny);
    EXPECT_NEAR(step.holders[1].slack_s, 10 * 50 * kUs, kTiny);
}

TEST(PredictStep, the_stations_host_memory_is_read_beside_and_needs_no_exchange) {
    PredictedPod pod = small_pod(HolderKind::kStationHost, HolderKind::kServer, 320e6);
    pod.holders[1].bandwidth = 640e6;
    pod.constants.round_trip.value = 30 * kUs;
    pod.constants.shared_experts.value = 20 * kUs;
    const PredictedStep step = pod.step();
    EXPECT_NEAR(step.total_s, 10 * 100 * kUs, kTiny);
    EXPECT_NEAR(step.holders[0].exchange_s, 0, kTiny);
    EXPECT_DOUBLE_EQ(step.holders[0].last_share, 1);
    EXPECT_NEAR(step.holders[1].busy_s, 10 * 50 * kUs, kTiny);
    EXPECT_NEAR(step.holders[1].exchange_s, 10 * 30 * kUs, kTiny);
    EXPECT_NEAR(step.holders[1].slack_s, 10 * 20 * kUs, kTiny);
}

TEST(PredictStep, a_holder_that_computes_longer_than_it_reads_takes_that_long) {
    PredictedPod pod = two_servers();
    pod.model.flops_per_column = 1000;
    for (PredictHolder& holder : pod.holders) holder.compute = 320e6;  // 100 us a row
    EXPECT_NEAR(pod.step().total_s, 10 * 100 * kUs, kTiny);
    Workload four;
    four.sequences = 4;  // read once, computed four times
    EXPECT_NEAR(pod.step(four).total_s, 10 * 400 * kUs, kTiny);
    EXPECT_NEAR(pod.step(four).holders[0].bytes, 10 * 32'000, 1e-6);
}

TEST(PredictStep, more_rows_take_more_of_each_link) {
    PredictedPod pod = two_servers();
    pod.constants.server_link.value = 16e6;  // 2,000 bytes of a further row there and back: 1 ms
    Workload three;
    three.sequences = 3;
    EXPECT_NEAR(pod.step(three).total_s, 10 * 2100 * kUs, kTiny);
    // Six rows of 1,000 bytes each way through the station: 6 ms.
    pod.constants.station_link.value = 8e6;
    EXPECT_NEAR(pod.step(three).total_s, 10 * 6000 * kUs, kTiny);
}

TEST(PredictStep, context_and_sequences_lengthen_the_attention) {
    PredictedPod pod = two_servers();
    pod.model.num_kda_layers = 6;
    pod.model.num_mla_layers = 4;
    pod.constants.kda_sequence.value = 2 * kUs;
    pod.constants.kda_row.value = 1 * kUs;
    pod.constants.mla_cached_token.value = 1e-9;
    Workload workload;
    workload.context = 1000;
    EXPECT_NEAR(pod.step(workload).attention_s, 4 * kUs, kTiny);
    workload.sequences = 5;
    EXPECT_NEAR(pod.step(workload).attention_s, (4 * 5 + 6 * 2 * 4) * kUs, kTiny);
    workload.drafts = 2;
    EXPECT_NEAR(pod.step(workload).attention_s, (4 * 5 + 6 * 2 * 4 + 6 * 10) * kUs, kTiny);
}

TEST(PredictStep, weights_are_read_once_until_computing_takes_longer) {
    PredictedPod pod = two_servers();
    pod.constants.kda_attention.value = 90 * kUs;
    pod.constants.shared_experts.value = 10 * kUs;
    pod.model.station_flops_per_row = 1e6;
    pod.constants.compute.value = 1e9;  // 1 ms a row, as long as the weights take
    Workload workload;
    EXPECT_NEAR(pod.step(workload).serial_s(), 900 * kUs, kTiny);
    workload.sequences = 3;
    EXPECT_NEAR(pod.step(workload).serial_s(), 2700 * kUs, kTiny);
    EXPECT_NEAR(pod.step(workload).shared_s, 300 * kUs, kTiny);
}

TEST(PredictStep, half_batches_in_turn_take_as_long_as_the_slowest_of_three) {
    PredictedPod pod = two_servers();  // 100 us of experts a layer, whatever the batch
    Workload pair;
    pair.sequences = 2;
    const auto alternating = [&](double station_us, double exchange_us) {
        pod.constants.kda_attention.value = station_us / 2 * kUs;
        pod.constants.shared_experts.value = station_us / 2 * kUs;
        pod.constants.round_trip.value = exchange_us * kUs;
        return pod.run(pair)->alternating_s;
    };
    EXPECT_NEAR(alternating(150, 0), 10 * 300 * kUs, kTiny);   // the station on both halves
    EXPECT_NEAR(alternating(60, 200), 10 * 360 * kUs, kTiny);  // one half's own way
    EXPECT_NEAR(alternating(60, 10), 10 * 200 * kUs, kTiny);   // the servers on both halves
    EXPECT_NEAR(pod.run(pair)->alternating_tokens_per_s, 2 / (10 * 200 * kUs), 1e-6);
}

TEST(PredictStep, one_sequence_has_no_halves) {
    EXPECT_DOUBLE_EQ(two_servers().run()->alternating_s, 0);
}

TEST(PredictStep, a_draft_costs_its_time_and_pays_by_acceptance) {
    PredictedPod pod = two_servers();
    pod.constants.draft.value = 500 * kUs;
    Workload workload;
    workload.drafts = 4;
    workload.acceptance = 0.5;
    const auto prediction = pod.run(workload);
    ASSERT_TRUE(prediction);
    EXPECT_NEAR(prediction->step.total_s, (500 + 10 * 100) * kUs, kTiny);
    EXPECT_NEAR(prediction->tokens_per_s, 3 / (1500 * kUs), 1e-6);
}

TEST(PredictStep, a_prefill_chunk_attends_to_half_of_what_it_grows_to) {
    PredictedPod pod = two_servers();
    pod.model.flops_per_cached_token = 10;
    pod.model.station_flops_per_row = 1000;
    pod.constants.compute.value = 1e9;
    pod.constants.kda_attention.value = 1 * kUs;
    Workload workload;
    workload.context = 2000;
    workload.chunk_tokens = 100;
    const auto prediction = pod.run(workload);
    ASSERT_TRUE(prediction);
    EXPECT_NEAR(prediction->prefill.attention_s, 100 * (1000 + 1000 * 10) / 1e9, 1e-9);
    EXPECT_NEAR(prediction->prefill_tokens_per_s, 100 / prediction->prefill.total_s, 1e-6);
}

TEST(PredictStep, says_whom_it_waits_for) {
    PredictedPod pod = small_pod(HolderKind::kStationHost, HolderKind::kServer, 320e6);
    pod.holders[1].bandwidth = 640e6;
    EXPECT_THAT(pod.run()->bound,
                ::testing::StartsWith("the station's host memory, last in 100 %"));
    pod.holders[0].bandwidth = 6400e6;
    EXPECT_THAT(pod.run()->bound, ::testing::StartsWith("the expert servers, last in 100 %"));
    pod.constants.shared_experts.value = 200 * kUs;
    EXPECT_EQ(pod.run()->bound, "the station's own work; it never waits");
}

}  // namespace
}  // namespace k3pod::testing

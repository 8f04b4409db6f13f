// A station and its servers together: what a lost server does to a step, and how the pod goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "tests/support/exchange_pod.h"
#include "tests/support/gate.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Where no test is about lateness, none shall come from a busy machine.
ExchangePodOptions patient() {
    ExchangePodOptions options;
    options.exchange.frame_deadline = std::chrono::seconds(10);
    options.exchange.heartbeats_missed = 100;
    return options;
}

TEST(ExchangePodLoss, of_a_server_fails_the_step_and_its_restart_serves_the_next) {
    ExchangePod pod(patient());
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    for (uint64_t round = 1; round <= 10; ++round) {
        const FakeStep step = fake_step({{0, 1}, {2, 3}}, round);
        ASSERT_TRUE(pod.run(step).is_ok());
        pod.kill("spark-2");
        const auto failed = pod.run(step);
        ASSERT_FALSE(failed.is_ok());
        EXPECT_EQ(failed.status().code(), Code::kUnavailable);
        EXPECT_THAT(failed.status().message(), HasSubstr("spark-2"));
        EXPECT_FALSE(pod.wait_for_down("spark-2").is_ok());
        EXPECT_THAT(pod.client().missing(), ElementsAre("spark-2"));

        ASSERT_TRUE(pod.start("spark-2").is_ok());
        ASSERT_TRUE(pod.attach("spark-2").is_ok());
        const auto again = pod.run(step);
        ASSERT_TRUE(again.is_ok()) << again.status().to_string();
        EXPECT_EQ(*again, expected_sum(step));
    }
}

TEST(ExchangePodLoss, does_not_touch_steps_that_do_without_the_server) {
    ExchangePod pod(patient());
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    pod.kill("spark-2");
    const FakeStep step = fake_step({{0, 2}, {4, 6}});
    const auto sum = pod.run(step);
    ASSERT_TRUE(sum.is_ok()) << sum.status().to_string();
    EXPECT_EQ(*sum, expected_sum(step));
}

TEST(ExchangePodIdle, holder_stalls_nothing_in_a_thousand_steps) {
    ExchangePod pod(patient());
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    for (uint64_t i = 1; i <= 1000; ++i) {
        const FakeStep step = fake_step({{6, 4}}, i, 1 + static_cast<int32_t>(i) % 3);
        const auto sum = pod.run(step);
        ASSERT_TRUE(sum.is_ok()) << sum.status().to_string();
        ASSERT_EQ(*sum, expected_sum(step));
    }
    EXPECT_EQ(pod.server("spark-1").num_frames(), 1000u);
    EXPECT_EQ(pod.server("spark-2").num_frames(), 0u);
}

TEST(ExchangePodHeartbeat, keeps_a_server_whose_frame_takes_long) {
    Gate gate;
    ExchangePodOptions options = patient();
    options.holders = {"spark-1"};
    options.exchange.heartbeat_interval = std::chrono::milliseconds(20);
    options.exchange.heartbeats_missed = 30;
    options.work = [&gate](const Placement& placement, size_t holder) -> FrameWork {
        return [&gate, work = fake_experts(placement, holder)](
                   int32_t layer, int32_t rows, std::span<const Bf16> latents,
                   std::span<const wire::WireEntry> entries, std::span<float> out) {
            gate.pass();
            return work(layer, rows, latents, entries, out);
        };
    };
    ExchangePod pod(options);
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    gate.close();
    const FakeStep step = fake_step({{0, 1}});
    auto sum = std::async(std::launch::async, [&] { return pod.run(step); });
    ASSERT_TRUE(gate.wait_arrived(1));
    // More than twice the silence that would kill it.
    EXPECT_EQ(sum.wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
    gate.open();
    const auto result = sum.get();
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_EQ(*result, expected_sum(step));
}

TEST(ExchangePodEnd, comes_in_any_order) {
    for (int round = 0; round < 20; ++round) {
        ExchangePod pod(patient());
        ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
        // A layer that is never combined, and servers that go while the station does.
        ASSERT_TRUE(pod.client().dispatch(fake_step({{0, 1}}).rows()).is_ok());
        pod.kill("spark-1");
        pod.kill("spark-2");
    }
}

}  // namespace
}  // namespace k3pod

// The exchange on a bad wire: whatever is dropped, doubled, delayed, damaged or cut, a step ends
// with the exact sum or with an error that names a node, and the next one starts clean.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/exchange_pod.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kSteps = 300;

ExchangePodOptions options_with(const FaultPlan& faults) {
    static const SteadyClock clock;
    ExchangePodOptions options;
    options.is_sliced = true;
    options.exchange.frame_deadline = std::chrono::milliseconds(400);
    options.exchange.heartbeat_interval = std::chrono::milliseconds(50);
    options.exchange.heartbeats_missed = 10;
    const auto network = make_loopback_network();
    options.transport = [faults, network](const std::string& node) -> MakeTransport {
        FaultPlan plan = faults;
        for (const char c : node) plan.seed = plan.seed * 31 + static_cast<uint64_t>(c);
        return [plan, network](TransportHandler& handler) {
            const MakeTransport inner =
                [network](TransportHandler& inner_handler) -> Result<std::unique_ptr<Transport>> {
                return make_loopback_transport(network, inner_handler);
            };
            return make_faulty_transport(plan, clock, inner, handler);
        };
    };
    return options;
}

// Runs steps; returns how many gave a sum. A lost server is started again, as its pod would.
int32_t run_steps(ExchangePod& pod) {
    int32_t num_exact = 0;
    for (int32_t i = 0; i < kSteps; ++i) {
        const FakeStep step = random_fake_step(static_cast<uint32_t>(i), 1 + i % 6,
                                               static_cast<uint64_t>(i / 3), 1 + i % 3);
        const auto sum = pod.run(step);
        if (sum.is_ok()) {
            EXPECT_EQ(*sum, expected_sum(step)) << "step " << i;
            ++num_exact;
            continue;
        }
        EXPECT_THAT(sum.status().message(), HasSubstr("spark-"));
        for (const std::string& node : pod.client().missing()) {
            EXPECT_TRUE(pod.start(node).is_ok());
            EXPECT_TRUE(pod.attach(node).is_ok());
        }
    }
    return num_exact;
}

// Starts lost servers again while the steps run, as the pod does.
class Reviver {
  public:
    explicit Reviver(ExchangePod& pod) : thread_([this, &pod] { run(pod); }) {}
    ~Reviver() {
        is_over_ = true;
        thread_.join();
    }
    int32_t num_revived() const { return num_revived_; }

  private:
    void run(ExchangePod& pod) {
        while (!is_over_) {
            for (const std::string& node : pod.client().missing()) {
                EXPECT_TRUE(pod.start(node).is_ok());
                EXPECT_TRUE(pod.attach(node).is_ok());
                ++num_revived_;
            }
            std::this_thread::yield();
        }
    }

    std::atomic<bool> is_over_{false};
    std::atomic<int32_t> num_revived_{0};
    std::thread thread_;
};

class ExchangeOnABadWire : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ExchangeOnABadWire, recovers_what_is_dropped) {
    ExchangePod pod(options_with({.seed = GetParam(), .drop_rate = 0.03}));
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    EXPECT_GE(run_steps(pod), kSteps - 3);
}

TEST_P(ExchangeOnABadWire, uses_nothing_that_is_damaged) {
    ExchangePod pod(options_with({.seed = GetParam(), .corrupt_rate = 0.05}));
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    EXPECT_GE(run_steps(pod), kSteps - 3);
}

TEST_P(ExchangeOnABadWire, counts_nothing_twice) {
    ExchangePod pod(options_with({.seed = GetParam(), .duplicate_rate = 0.2}));
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    EXPECT_EQ(run_steps(pod), kSteps);
}

TEST_P(ExchangeOnABadWire, is_not_confused_by_replies_out_of_order) {
    ExchangePod pod(options_with(
        {.seed = GetParam(), .duplicate_rate = 0.1, .max_delay = std::chrono::microseconds(500)}));
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    EXPECT_EQ(run_steps(pod), kSteps);
}

TEST_P(ExchangeOnABadWire, goes_on_after_cuts) {
    ExchangePod pod(options_with({.seed = GetParam(), .disconnect_rate = 0.01}));
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    EXPECT_GE(run_steps(pod), kSteps * 8 / 10);
}

TEST_P(ExchangeOnABadWire, survives_everything_at_once) {
    ExchangePod pod(options_with({.seed = GetParam(),
                                  .drop_rate = 0.02,
                                  .duplicate_rate = 0.05,
                                  .corrupt_rate = 0.02,
                                  .disconnect_rate = 0.002,
                                  .max_delay = std::chrono::microseconds(200)}));
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    EXPECT_GE(run_steps(pod), kSteps * 8 / 10);
}

TEST_P(ExchangeOnABadWire, holds_every_step_to_its_exact_sum_whatever_happens) {
    ExchangePodOptions options = options_with({.seed = GetParam(),
                                               .drop_rate = 0.02,
                                               .duplicate_rate = 0.05,
                                               .corrupt_rate = 0.02,
                                               .disconnect_rate = 0.01,
                                               .max_delay = std::chrono::microseconds(200)});
    options.exchange.hold_timeout = std::chrono::seconds(60);
    ExchangePod pod(options);
    ASSERT_TRUE(pod.status().is_ok()) << pod.status().to_string();
    const Reviver reviver(pod);
    EXPECT_EQ(run_steps(pod), kSteps) << "seed " << GetParam();
    EXPECT_GE(reviver.num_revived(), 3) << "the wire was not bad enough";
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExchangeOnABadWire, ::testing::Values(1u, 2u, 3u));

}  // namespace
}  // namespace k3pod::testing

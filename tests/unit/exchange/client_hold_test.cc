// A layer whose server is lost, late or useless is held in place until the server answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/client_rig.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// One row to spark-1 (expert 0) and spark-2 (expert 1), held for 20 s at most.
class ExchangeHold : public ::testing::Test {
  protected:
    ExchangeHold() { rig_.options.hold_timeout = std::chrono::seconds(20); }

    void begin() {
        rig_.dispatch(step_);
        sum_ = rig_.combine(step_);
    }
    void answer(const ScriptedMessage& request, float value) {
        const ScriptedReply reply = make_reply(request, value);
        rig_.wire.deliver(reply.header, reply.payload);
    }
    bool wait_for_holding(const std::string& text) {
        const TimePoint end = rig_.clock.now() + ClientRig::kPatience;
        while (rig_.clock.now() < end) {
            if (rig_.client->holding().find(text) != std::string::npos) return true;
            std::this_thread::yield();
        }
        return false;
    }
    void expect_sum(float value) {
        const auto result = sum_.get();
        ASSERT_TRUE(result.is_ok()) << result.status().to_string();
        EXPECT_THAT(*result, Each(value));
        EXPECT_EQ(rig_.client->holding(), "");
    }

    ClientRig rig_{fake_placement({"spark-1", "spark-2"}, false)};
    const FakeStep step_ = fake_step({{0, 1}}, 7, 2);
    std::future<Result<std::vector<float>>> sum_;
};

TEST_F(ExchangeHold, sends_the_same_frame_again_in_the_next_session) {
    rig_.start();
    begin();
    const ScriptedMessage first = rig_.request(2);
    answer(rig_.request(1), 1.0f);
    rig_.client->detach("spark-2", unavailable("spark-2 is gone: killed"));
    rig_.attach("spark-2", 50);
    const ScriptedMessage again = rig_.request(3);
    EXPECT_EQ(again.header.session, 50u);
    EXPECT_EQ(again.header.step, 7u);
    EXPECT_EQ(again.header.layer, 2u);
    EXPECT_EQ(again.header.attempt, 1u);
    EXPECT_EQ(again.payload, first.payload);
    EXPECT_TRUE(wire::check_request(again.header, again.payload, kFakeLimits).is_ok());
    answer(first, 99.0f);  // of the session that is over
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_dropped_total", "reason=\"session\"", 1));
    answer(again, 2.0f);
    expect_sum(3.0f);
    EXPECT_EQ(rig_.wire.num_sent(wire::FrameKind::kRequest), 3u) << "spark-1 was asked again";
}

TEST_F(ExchangeHold, lasts_while_a_server_is_lost_ten_times) {
    rig_.start();
    begin();
    answer(rig_.request(1), 1.0f);
    for (uint64_t i = 1; i <= 10; ++i) {
        ASSERT_EQ(rig_.request(1 + i).header.attempt, i - 1);
        rig_.client->detach("spark-2", unavailable("spark-2 is gone"));
        rig_.attach("spark-2", 50 + i);
    }
    answer(rig_.request(12), 4.0f);
    expect_sum(5.0f);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_holds_total", "node=\"spark-2\"", 1));
}

TEST_F(ExchangeHold, tells_for_whom_and_where) {
    rig_.start();
    begin();
    ASSERT_NE(rig_.request(2).peer, kNoPeer);
    EXPECT_EQ(rig_.client->holding(), "");
    rig_.client->detach("spark-2", unavailable("spark-2 is gone"));
    EXPECT_THAT(rig_.client->holding(),
                MatchesRegex("waiting for spark-2 for [0-9.]+ s at layer 2"));
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_holding", "node=\"spark-2\"", 1));
    rig_.client->detach("spark-1", unavailable("spark-1 is gone"));
    EXPECT_THAT(rig_.client->holding(), HasSubstr("waiting for spark-1, spark-2 for "));
    rig_.attach("spark-2", 50);
    answer(rig_.request(3), 2.0f);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_holding", "node=\"spark-2\"", 0));
    EXPECT_THAT(rig_.client->holding(), HasSubstr("waiting for spark-1 for "));
    rig_.attach("spark-1", 51);
    answer(rig_.request(4), 1.0f);
    expect_sum(3.0f);
}

TEST_F(ExchangeHold, begins_with_the_dispatch_when_the_server_is_lost_already) {
    rig_.start();
    rig_.client->detach("spark-1", unavailable("spark-1 is draining"));
    begin();
    answer(rig_.request(1), 1.0f);  // of spark-2, which is not kept waiting
    EXPECT_THAT(rig_.client->holding(), HasSubstr("waiting for spark-1 "));
    rig_.attach("spark-1", 50);
    const ScriptedMessage request = rig_.request(2);
    EXPECT_EQ(request.header.session, 50u);
    answer(request, 2.0f);
    expect_sum(3.0f);
}

TEST_F(ExchangeHold, ends_at_its_limit_with_the_node_and_its_reason) {
    rig_.options.hold_timeout = milliseconds(100);
    rig_.start();
    begin();
    answer(rig_.request(1), 1.0f);
    rig_.client->detach("spark-2", unavailable("spark-2 is gone: killed"));
    const Status failed = sum_.get().status();
    EXPECT_EQ(failed.code(), Code::kUnavailable);
    EXPECT_THAT(failed.message(),
                MatchesRegex("layer 2 of step 7 was held for 0.[0-9] s \\(hold_timeout 0.1 s\\) in "
                             "vain: spark-2 is gone: killed"));
    EXPECT_EQ(rig_.client->holding(), "");

    // Whoever comes now does not wait as long again.
    const Status refused = rig_.client->dispatch(fake_step({{0, 1}}, 8, 1).rows());
    EXPECT_EQ(refused.code(), Code::kUnavailable);
    EXPECT_EQ(refused.message(), "spark-2 is gone: killed");

    rig_.attach("spark-2", 50);
    const FakeStep next = fake_step({{1, 3}}, 9, 1);
    rig_.dispatch(next);
    sum_ = rig_.combine(next);
    answer(rig_.request(3), 2.0f);
    expect_sum(2.0f);
}

TEST_F(ExchangeHold, is_for_a_server_that_lives_and_does_not_answer_too) {
    rig_.options.frame_deadline = milliseconds(40);
    rig_.start();
    begin();
    answer(rig_.request(1), 1.0f);
    ASSERT_TRUE(wait_for_holding("waiting for spark-2 "));
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_deadline_failures_total", "node=\"spark-2\"", 1));
    EXPECT_TRUE(rig_.client->missing().empty()) << "what it computes must not be thrown away";
    // It is asked again at the pace of the deadline.
    const ScriptedMessage again = rig_.request(8);
    EXPECT_EQ(again.header.session, 11u);
    answer(again, 2.0f);
    expect_sum(3.0f);
}

TEST_F(ExchangeHold, asks_a_server_whose_experts_fail_at_the_pace_of_the_deadline) {
    rig_.options.frame_deadline = milliseconds(50);
    rig_.start();
    begin();
    answer(rig_.request(1), 1.0f);
    const TimePoint begin = rig_.clock.now();
    for (size_t i = 2; i <= 5; ++i) {
        rig_.wire.deliver(make_refusal(rig_.request(i), wire::FrameStatus::kFault));
        ASSERT_TRUE(wait_for_holding("waiting for spark-2 "));
    }
    answer(rig_.request(6), 2.0f);
    EXPECT_GE(rig_.clock.now() - begin, milliseconds(150));
    expect_sum(3.0f);
}

TEST_F(ExchangeHold, takes_a_server_of_another_epoch_out_and_goes_on_in_its_next_session) {
    rig_.start();
    begin();
    answer(rig_.request(1), 1.0f);
    rig_.wire.deliver(make_refusal(rig_.request(2), wire::FrameStatus::kWrongEpoch));
    EXPECT_EQ(rig_.wait_for_down().first, "spark-2");
    EXPECT_THAT(rig_.client->missing(), ::testing::ElementsAre("spark-2"));
    rig_.attach("spark-2", 50);
    answer(rig_.request(3), 2.0f);
    expect_sum(3.0f);
}

TEST_F(ExchangeHold, frees_a_frame_whose_sends_are_stuck) {
    rig_.options.frame_deadline = milliseconds(40);
    rig_.start();
    rig_.wire.hold_sends(true);
    rig_.dispatch(fake_step({{0, 2}}, 1));
    rig_.dispatch(fake_step({{0, 4}}, 2));
    const FakeStep third = fake_step({{0, 6}}, 3);
    rig_.dispatch(third);  // Both slots of spark-1 are on their way for ever.
    EXPECT_THAT(rig_.client->missing(), ::testing::ElementsAre("spark-1"));
    sum_ = rig_.combine(third);
    rig_.wire.hold_sends(false);
    rig_.attach("spark-1", 50);
    answer(rig_.request(3), 2.0f);
    expect_sum(2.0f);
}

TEST_F(ExchangeHold, ends_when_the_station_ends_and_none_begins_then) {
    rig_.start();
    begin();
    answer(rig_.request(1), 1.0f);
    rig_.client->detach("spark-2", unavailable("spark-2 is gone"));
    rig_.client->stop_holding(unavailable("the station is shutting down"));
    EXPECT_EQ(sum_.get().status().message(), "the station is shutting down");
    EXPECT_EQ(rig_.client->dispatch(fake_step({{0, 1}}, 8, 1).rows()).message(), "spark-2 is gone");
}

}  // namespace
}  // namespace k3pod

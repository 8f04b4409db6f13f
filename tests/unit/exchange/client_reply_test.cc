// Replies that count and replies that do not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/client_rig.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::Each;
using ::testing::HasSubstr;

// One row to spark-1 (node 0, session 10), which holds the even experts.
class ExchangeReply : public ::testing::Test {
  protected:
    void SetUp() override {
        rig_.start();
        rig_.dispatch(step_);
        sum_ = rig_.combine(step_);
        request_ = rig_.request();
        ASSERT_EQ(request_.header.node, 0);
    }
    void deliver(const ScriptedReply& reply) { rig_.wire.deliver(reply.header, reply.payload); }
    // The reply that counts; whatever came before must have had no effect.
    void finish() {
        deliver(make_reply(request_, 3.0f));
        const auto sum = sum_.get();
        ASSERT_TRUE(sum.is_ok()) << sum.status().to_string();
        EXPECT_THAT(*sum, Each(3.0f));
    }

    ClientRig rig_{fake_placement({"spark-1", "spark-2"}, false)};
    const FakeStep step_ = fake_step({{0, 2}}, 7, 2);
    std::future<Result<std::vector<float>>> sum_;
    ScriptedMessage request_;
};

struct Stranger {
    const char* name;
    void (*change)(wire::FrameHeader& header);
    const char* reason;
};

class ExchangeStranger : public ExchangeReply, public ::testing::WithParamInterface<Stranger> {};

TEST_P(ExchangeStranger, is_dropped_and_counted_by_reason) {
    ScriptedReply stranger = make_reply(request_, 99.0f);
    GetParam().change(stranger.header);
    stranger.seal();
    deliver(stranger);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_dropped_total",
                                "reason=\"" + std::string(GetParam().reason) + "\"", 1));
    finish();
}

INSTANTIATE_TEST_SUITE_P(
    All, ExchangeStranger,
    ::testing::Values(Stranger{"session", [](wire::FrameHeader& h) { h.session = 77; }, "session"},
                      Stranger{"session_of_another_node",
                               [](wire::FrameHeader& h) { h.session = 11; }, "session"},
                      Stranger{"epoch", [](wire::FrameHeader& h) { h.epoch = 4; }, "epoch"},
                      Stranger{"older_step", [](wire::FrameHeader& h) { h.step = 6; }, "late"},
                      Stranger{"newer_step", [](wire::FrameHeader& h) { h.step = 8; }, "late"},
                      Stranger{"layer", [](wire::FrameHeader& h) { h.layer = 1; }, "late"},
                      Stranger{"unknown_node", [](wire::FrameHeader& h) { h.node = 2; }, "foreign"},
                      Stranger{"kind",
                               [](wire::FrameHeader& h) { h.kind = wire::FrameKind::kRequest; },
                               "foreign"},
                      // Node 1 owes nothing in this step.
                      Stranger{"idle_node",
                               [](wire::FrameHeader& h) {
                                   h.node = 1;
                                   h.session = 11;
                               },
                               "duplicate"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(ExchangeReply, of_an_earlier_attempt_is_as_good) {
    ScriptedReply reply = make_reply(request_, 3.0f);
    reply.header.attempt = 0;
    reply.seal();
    deliver(reply);
    EXPECT_TRUE(sum_.get().is_ok());
}

TEST_F(ExchangeReply, that_comes_twice_counts_once) {
    finish();
    deliver(make_reply(request_, 99.0f));
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_dropped_total", "reason=\"late\"", 1));
}

TEST_F(ExchangeReply, with_a_damaged_header_is_dropped) {
    ScriptedReply reply = make_reply(request_, 99.0f);
    reply.header.step ^= 1;  // not sealed again
    deliver(reply);
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_dropped_total", "reason=\"corrupt\"", 1));
    finish();
}

TEST_F(ExchangeReply, with_damaged_rows_is_asked_for_again) {
    ScriptedReply reply = make_reply(request_, 99.0f);
    reply.payload[5] ^= std::byte{4};
    deliver(reply);
    const ScriptedMessage again = rig_.request(2);
    EXPECT_EQ(again.header.attempt, 1);
    EXPECT_EQ(again.header.step, 7u);
    EXPECT_EQ(again.payload, request_.payload);
    EXPECT_TRUE(wire::check_request(again.header, again.payload, kFakeLimits).is_ok());
    finish();
    EXPECT_TRUE(rig_.has_metric("k3pod_exchange_resends_total", "node=\"spark-1\"", 1));
}

TEST_F(ExchangeReply, with_another_number_of_rows_is_not_used) {
    ScriptedReply reply = make_reply(request_, 99.0f);
    reply.header.rows = 2;
    reply.payload.resize(2 * reply.payload.size());
    reply.seal();
    deliver(reply);
    EXPECT_EQ(rig_.request(2).header.attempt, 1);
    finish();
}

TEST_F(ExchangeReply, in_another_number_format_is_not_used) {
    ScriptedReply reply = make_reply(request_, 99.0f);
    reply.header.flags |= wire::kFlagReplyF32;
    reply.payload.resize(2 * reply.payload.size());
    reply.seal();
    deliver(reply);
    EXPECT_EQ(rig_.request(2).header.attempt, 1);
    finish();
}

TEST_F(ExchangeReply, bad_frame_leads_to_another_attempt) {
    rig_.wire.deliver(make_refusal(request_, wire::FrameStatus::kBadFrame));
    EXPECT_EQ(rig_.request(2).header.attempt, 1);
    finish();
}

TEST_F(ExchangeReply, bad_frame_every_time_fails_with_node_and_status) {
    for (size_t attempt = 1; attempt <= 10; ++attempt) {
        rig_.wire.deliver(make_refusal(rig_.request(attempt), wire::FrameStatus::kBadFrame));
    }
    const auto sum = sum_.get();
    EXPECT_EQ(sum.status().code(), Code::kUnavailable);
    EXPECT_EQ(sum.status().message(),
              "spark-1's answer to layer 2 of step 7 (epoch 5) is 'bad_frame'");
    EXPECT_EQ(rig_.wire.num_sent(wire::FrameKind::kRequest), 10u);
}

TEST_F(ExchangeReply, fault_fails_the_layer_and_the_next_one_works) {
    rig_.wire.deliver(make_refusal(request_, wire::FrameStatus::kFault));
    EXPECT_THAT(sum_.get().status().message(), HasSubstr("spark-1's answer to layer 2 of step 7"));
    const FakeStep next = fake_step({{4, 6}}, 7, 3);
    rig_.dispatch(next);
    auto sum = rig_.combine(next);
    deliver(make_reply(rig_.request(2), 5.0f));
    const auto result = sum.get();
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_THAT(*result, Each(5.0f));
}

TEST_F(ExchangeReply, wrong_epoch_fails_the_layer_and_takes_the_node_out) {
    rig_.wire.deliver(make_refusal(request_, wire::FrameStatus::kWrongEpoch));
    EXPECT_THAT(sum_.get().status().message(), HasSubstr("is 'wrong_epoch'"));
    const auto [node, why] = rig_.wait_for_down();
    EXPECT_EQ(node, "spark-1");
    EXPECT_THAT(why.message(), HasSubstr("(epoch 5) is 'wrong_epoch'"));
    EXPECT_THAT(rig_.client->missing(), ::testing::ElementsAre("spark-1"));
}

TEST(ExchangeSum, is_in_holder_order_whoever_answers_first) {
    ClientRig rig(fake_placement({"spark-1", "spark-2", "spark-3", "spark-4"}, true));
    rig.options.reply_f32 = true;
    rig.start();
    const FakeStep step = fake_step({{0, 1}});
    rig.dispatch(step);
    auto sum = rig.combine(step);
    // ((1e8 + 1) - 1e8) + 1 = 1 in fp32, as 1e8 swallows the first 1; any other order gives 0 or 2.
    const float values[4] = {1e8f, 1.0f, -1e8f, 1.0f};
    for (const size_t h : {size_t{3}, size_t{1}, size_t{0}, size_t{2}}) {
        const ScriptedReply reply = make_reply(rig.request(h + 1), values[h]);
        rig.wire.deliver(reply.header, reply.payload);
    }
    const auto result = sum.get();
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_THAT(*result, Each(1.0f));
}

TEST(ExchangeSum, of_the_station_alone_needs_no_wire) {
    ClientRig rig(fake_placement({"station"}, false));
    rig.local = fake_experts(rig.placement, 0);
    rig.start();
    const FakeStep step = fake_step({{1, 4}}, 1, 2);
    rig.dispatch(step);
    const auto sum = rig.combine(step).get();
    ASSERT_TRUE(sum.is_ok()) << sum.status().to_string();
    EXPECT_EQ(*sum, expected_sum(step));
}

TEST(ExchangeSum, fails_with_the_reason_of_the_stations_own_experts) {
    ClientRig rig(fake_placement({"station"}, false));
    rig.local = [](auto&&...) { return internal_error("out of scratch"); };
    rig.start();
    const FakeStep step = fake_step({{1, 4}});
    rig.dispatch(step);
    EXPECT_EQ(rig.combine(step).get().status().message(), "station's own experts: out of scratch");
}

TEST(ExchangeSum, refuses_room_of_another_size) {
    ClientRig rig(fake_placement({"spark-1"}, false));
    rig.start();
    rig.dispatch(fake_step({{1, 4}}));
    std::vector<float> out(7);
    EXPECT_THAT(rig.client->combine(out).message(), HasSubstr("room for 7 values, expected 8"));
}

}  // namespace
}  // namespace k3pod

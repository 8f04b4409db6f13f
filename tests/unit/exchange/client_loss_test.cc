// Servers that are late, silent, dead or replaced.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/client_rig.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Placement two_servers() {
    return fake_placement({"spark-1", "spark-2"}, false);
}

TEST(ExchangeDeadline, names_who_did_not_answer_and_the_next_layer_works) {
    ClientRig rig(two_servers());
    rig.options.frame_deadline = milliseconds(80);
    rig.start();
    const FakeStep step = fake_step({{0, 1}}, 7, 2);
    rig.dispatch(step);
    auto sum = rig.combine(step);
    const ScriptedReply reply = make_reply(rig.request(1), 1.0f);
    rig.wire.deliver(reply.header, reply.payload);

    const Status late = sum.get().status();
    EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
    EXPECT_THAT(late.message(),
                ContainsRegex("^no answer to layer 2 of step 7 within 0.08 s from spark-2 "
                              "\\(sent [1-5] times, last heard .* s ago\\)$"));
    EXPECT_TRUE(rig.has_metric("k3pod_exchange_deadline_failures_total", "node=\"spark-2\"", 1));
    EXPECT_TRUE(rig.has_metric("k3pod_exchange_deadline_failures_total", "node=\"spark-1\"", 0));
    EXPECT_TRUE(rig.client->missing().empty());

    const FakeStep next = fake_step({{0, 2}}, 8, 1);
    const size_t sent = rig.wire.num_sent(wire::FrameKind::kRequest);
    rig.dispatch(next);
    sum = rig.combine(next);
    const ScriptedReply good = make_reply(rig.request(sent + 1), 2.0f);
    rig.wire.deliver(good.header, good.payload);
    EXPECT_TRUE(sum.get().is_ok());
}

TEST(ExchangeDeadline, is_preceded_by_a_resend) {
    ClientRig rig(two_servers());
    rig.options.frame_deadline = milliseconds(800);  // the first resend comes after an eighth
    rig.start();
    const FakeStep step = fake_step({{0, 2}});
    rig.dispatch(step);
    auto sum = rig.combine(step);
    const ScriptedMessage again = rig.request(2);
    EXPECT_EQ(again.header.attempt, 1);
    const ScriptedReply reply = make_reply(again, 4.0f);
    rig.wire.deliver(reply.header, reply.payload);
    const auto result = sum.get();
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_THAT(*result, Each(4.0f));
}

TEST(ExchangeHeartbeat, goes_out_when_nothing_is_heard) {
    ClientRig rig(two_servers());
    rig.options.heartbeat_interval = milliseconds(20);
    rig.options.heartbeats_missed = 500;
    rig.start();
    const ScriptedMessage beat = rig.wire.wait_for_sent(wire::FrameKind::kHeartbeat);
    EXPECT_TRUE(wire::decode_header(std::as_bytes(std::span(&beat.header, 1))).is_ok());
    EXPECT_EQ(beat.header.session, 10u + beat.header.node);
    EXPECT_NE(rig.wire.wait_for_sent(wire::FrameKind::kHeartbeat, 5).peer, kNoPeer);
}

TEST(ExchangeHeartbeat, missed_too_often_fails_the_layer_and_reports_the_node) {
    ClientRig rig(fake_placement({"spark-1"}, false));
    rig.options.heartbeat_interval = milliseconds(20);
    rig.options.heartbeats_missed = 5;
    rig.start();
    const FakeStep step = fake_step({{0, 1}});
    rig.dispatch(step);
    const Status failed = rig.combine(step).get().status();
    EXPECT_EQ(failed.code(), Code::kUnavailable);
    EXPECT_THAT(failed.message(), ContainsRegex("^spark-1 has been silent for [0-9.]+ s "
                                                "\\(limit 0.10 s\\): its process is stopped"));
    const auto [node, why] = rig.wait_for_down();
    EXPECT_EQ(node, "spark-1");
    EXPECT_EQ(why.message(), failed.message());
    EXPECT_THAT(rig.client->missing(), ElementsAre("spark-1"));
}

TEST(ExchangeHeartbeat, answered_keeps_the_node) {
    ClientRig rig(fake_placement({"spark-1"}, false));
    rig.options.heartbeat_interval = milliseconds(10);
    rig.options.heartbeats_missed = 50;
    rig.start();
    // Twice the limit, as heartbeats go out only while nothing is heard.
    for (size_t i = 1; i <= 100; ++i) {
        wire::FrameHeader answer = rig.wire.wait_for_sent(wire::FrameKind::kHeartbeat, i).header;
        ASSERT_EQ(answer.kind, wire::FrameKind::kHeartbeat);
        answer.kind = wire::FrameKind::kHeartbeatReply;
        wire::seal_header(answer);
        rig.wire.deliver(answer);
    }
    EXPECT_TRUE(rig.client->missing().empty());
}

TEST(ExchangeLoss, seen_by_the_transport_fails_the_layer_at_once) {
    ClientRig rig(two_servers());
    rig.start();
    const FakeStep step = fake_step({{0, 1}});
    rig.dispatch(step);
    auto sum = rig.combine(step);
    rig.wire.fail_peer(rig.request(2).peer, "spark-2 is gone: connection reset");
    const Status failed = sum.get().status();
    EXPECT_EQ(failed.code(), Code::kUnavailable);
    EXPECT_EQ(failed.message(), "spark-2 is gone: connection reset");
    EXPECT_EQ(rig.wait_for_down().first, "spark-2");
    EXPECT_THAT(rig.wire.disconnected(), ElementsAre(rig.request(2).peer));
}

TEST(ExchangeLoss, seen_while_idle_is_reported) {
    ClientRig rig(two_servers());
    rig.start();
    rig.wire.fail_peer(100,
                       "spark-1 is gone: connection reset");  // the first peer of a scripted wire
    EXPECT_EQ(rig.wait_for_down().first, "spark-1");
    EXPECT_TRUE(rig.has_metric("k3pod_exchange_peers_up", "", 1));
}

TEST(ExchangeLoss, seen_by_a_send_fails_the_dispatch) {
    ClientRig rig(two_servers());
    rig.start();
    rig.wire.refuse_sends(true);
    EXPECT_THAT(rig.client->dispatch(fake_step({{0, 2}}).rows()).message(),
                HasSubstr("cannot send to spark-1: "));
    EXPECT_EQ(rig.wait_for_down().first, "spark-1");
}

TEST(ExchangeDetach, fails_the_layer_with_its_reason) {
    ClientRig rig(two_servers());
    rig.start();
    const FakeStep step = fake_step({{0, 1}});
    rig.dispatch(step);
    auto sum = rig.combine(step);
    ASSERT_NE(rig.request(2).peer, kNoPeer);
    rig.client->detach("spark-2", unavailable("spark-2: Socket closed"));
    EXPECT_EQ(sum.get().status().message(), "spark-2: Socket closed");
    EXPECT_THAT(rig.client->missing(), ElementsAre("spark-2"));
    rig.client->detach("spark-2", unavailable("again"));  // without effect
    rig.client->detach("spark-9", unavailable("unknown"));
}

TEST(ExchangeDetach, frees_memory_of_sends_that_were_stuck) {
    ClientRig rig(fake_placement({"spark-1"}, false));
    rig.options.frame_deadline = milliseconds(100);
    rig.start();
    rig.wire.hold_sends(true);
    rig.dispatch(fake_step({{0, 2}}, 1));
    rig.dispatch(fake_step({{0, 4}}, 2));
    rig.client->detach("spark-1", unavailable("gone"));
    rig.attach("spark-1", 50);
    rig.dispatch(fake_step({{0, 6}}, 3));
    EXPECT_EQ(rig.request(3).header.session, 50u);
}

TEST(ExchangeAttach, replaces_the_connection_and_drops_replies_of_the_old_session) {
    ClientRig rig(fake_placement({"spark-1"}, false));
    rig.start();
    const FakeStep first = fake_step({{0, 1}}, 1);
    rig.dispatch(first);
    auto sum = rig.combine(first);
    const ScriptedReply old = make_reply(rig.request(1), 99.0f);
    rig.attach("spark-1", 50);
    EXPECT_EQ(sum.get().status().message(), "spark-1 connected anew while a step waited for it");

    const FakeStep second = fake_step({{0, 1}}, 2);
    rig.dispatch(second);
    sum = rig.combine(second);
    const ScriptedMessage request = rig.request(2);
    EXPECT_EQ(request.header.session, 50u);
    rig.wire.deliver(old.header, old.payload);
    EXPECT_TRUE(rig.has_metric("k3pod_exchange_dropped_total", "reason=\"session\"", 1));
    const ScriptedReply reply = make_reply(request, 2.0f);
    rig.wire.deliver(reply.header, reply.payload);
    const auto result = sum.get();
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_THAT(*result, Each(2.0f));
}

TEST(ExchangeAttach, refuses_a_node_that_is_not_in_the_placement) {
    ClientRig rig(two_servers());
    rig.start();
    const std::vector<std::byte> address{std::byte{1}};
    EXPECT_THAT(rig.client->attach("spark-3", address, 5).message(),
                HasSubstr("spark-3 is no expert server of placement epoch 5"));
}

}  // namespace
}  // namespace k3pod

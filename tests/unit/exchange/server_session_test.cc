// Sessions of an expert server, and frames that come while it works.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/fake_clock.h"
#include "tests/support/server_rig.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ExchangeWorker : public ::testing::Test {
  protected:
    void SetUp() override {
        rig_.start();
        rig_.gate.close();
        rig_.deliver(ServerRig::request(1));
        ASSERT_TRUE(rig_.gate.wait_arrived(1));  // the worker is at step 1
    }
    static ScriptedRequest attempt(uint64_t step, uint16_t number) {
        ScriptedRequest request = ServerRig::request(step);
        request.header.attempt = number;
        request.header.sent_ns = 1234u + number;
        request.seal();
        return request;
    }

    ServerRig rig_;
};

TEST_F(ExchangeWorker, answers_heartbeats_while_it_computes) {
    wire::FrameHeader beat{};
    beat.kind = wire::FrameKind::kHeartbeat;
    beat.session = ServerRig::kSession;
    beat.node = 1;
    beat.sent_ns = 55;
    wire::seal_header(beat);
    rig_.wire.deliver(beat);
    const ScriptedMessage answer = rig_.wire.wait_for_sent(wire::FrameKind::kHeartbeatReply);
    EXPECT_TRUE(wire::decode_header(std::as_bytes(std::span(&answer.header, 1))).is_ok());
    EXPECT_EQ(answer.header.sent_ns, 55u);
    EXPECT_EQ(answer.header.session, ServerRig::kSession);
    EXPECT_EQ(rig_.wire.num_sent(wire::FrameKind::kReply), 0u);
    EXPECT_EQ(rig_.server->num_frames(), 0u);
}

TEST_F(ExchangeWorker, does_not_compute_a_repeated_frame_twice) {
    rig_.deliver(attempt(1, 1));
    rig_.deliver(attempt(1, 2));
    ASSERT_TRUE(rig_.has_metric("k3pod_exchange_frames_dropped_total", "reason=\"duplicate\"", 2));
    rig_.gate.open();
    const ScriptedMessage reply = rig_.reply();
    EXPECT_EQ(reply.header.attempt, 2);  // of the newest attempt
    EXPECT_EQ(reply.header.sent_ns, 1236u);
    rig_.deliver(ServerRig::request(2));
    EXPECT_EQ(rig_.reply(2).header.step, 2u);
    EXPECT_EQ(rig_.gate.num_arrived(), 2);
}

TEST_F(ExchangeWorker, computes_a_frame_again_when_its_reply_may_be_lost) {
    rig_.gate.open();
    ASSERT_EQ(rig_.reply(1).header.attempt, 0);
    rig_.deliver(attempt(1, 1));
    const ScriptedMessage again = rig_.reply(2);
    EXPECT_EQ(again.header.step, 1u);
    EXPECT_EQ(again.header.attempt, 1);
}

TEST_F(ExchangeWorker, keeps_the_newest_of_the_frames_that_wait) {
    rig_.deliver(ServerRig::request(2));
    rig_.deliver(ServerRig::request(4));
    rig_.deliver(ServerRig::request(3));  // late, after its successor
    ASSERT_TRUE(rig_.has_metric("k3pod_exchange_frames_dropped_total", "reason=\"superseded\"", 2));
    rig_.gate.open();
    EXPECT_EQ(rig_.reply(1).header.step, 1u);
    EXPECT_EQ(rig_.reply(2).header.step, 4u);
    EXPECT_EQ(rig_.gate.num_arrived(), 2);
}

TEST_F(ExchangeWorker, sends_no_reply_for_a_session_that_ended_meanwhile) {
    rig_.server->close_session(ServerRig::kSession);
    rig_.open(78);
    rig_.gate.open();
    ASSERT_TRUE(rig_.has_metric("k3pod_exchange_frames_dropped_total", "reason=\"session\"", 1));
    ScriptedRequest request = ServerRig::request(1);
    request.header.session = 78;
    request.seal();
    rig_.deliver(request);
    EXPECT_EQ(rig_.reply(1).header.session, 78u);
    EXPECT_EQ(rig_.wire.num_sent(wire::FrameKind::kReply), 1u);
}

TEST_F(ExchangeWorker, takes_a_frame_of_a_new_session_with_the_numbers_of_the_old) {
    rig_.open(78);
    ScriptedRequest request = ServerRig::request(1);
    request.header.session = 78;
    request.seal();
    rig_.deliver(request);
    rig_.gate.open();
    EXPECT_EQ(rig_.reply(1).header.session, 78u);
}

TEST(ExchangeSession, that_is_closed_drops_frames_and_its_connection) {
    ServerRig rig;
    rig.start();
    rig.server->close_session(123);  // another one: ignored
    rig.deliver(ServerRig::request(1));
    const PeerId station = rig.reply().peer;
    rig.server->close_session(ServerRig::kSession);
    EXPECT_THAT(rig.wire.disconnected(), ElementsAre(station));
    rig.deliver(ServerRig::request(2));
    EXPECT_TRUE(rig.has_metric("k3pod_exchange_frames_dropped_total", "reason=\"session\"", 1));
    EXPECT_EQ(rig.wire.num_sent(wire::FrameKind::kReply), 1u);
}

TEST(ExchangeSession, of_more_rows_than_the_node_has_room_for_is_refused) {
    ServerRig rig;
    rig.start();
    Assignment assignment = ServerRig::assignment(78);
    assignment.max_rows = 7;
    EXPECT_THAT(rig.server->open_session(assignment, FrameWork{}).message(),
                HasSubstr("sends up to 7 rows a frame, this node has room for 6"));
}

TEST(ExchangeSession, finds_the_station_again_when_the_way_to_it_broke) {
    ServerRig rig;
    rig.options.heartbeat_interval = std::chrono::milliseconds(5);
    rig.start();
    rig.deliver(ServerRig::request(1));
    const PeerId first = rig.reply(1).peer;
    rig.wire.fail_peer(first, "reset");
    EXPECT_TRUE(rig.has_disconnected(first));
    rig.deliver(ServerRig::request(2));
    const PeerId second = rig.reply(2).peer;
    EXPECT_NE(second, kNoPeer);
    EXPECT_NE(second, first);
}

// Waits until the server has looked at the time and found the station silent for so long.
::testing::AssertionResult shows_silence(const MetricsRegistry& metrics, double seconds) {
    const auto end = std::chrono::steady_clock::now() + ServerRig::kPatience;
    double found = 0;
    while (std::chrono::steady_clock::now() < end) {
        found = metric_value(metrics, "k3pod_exchange_station_silence_seconds").value_or(-1);
        if (std::abs(found - seconds) < 0.01) return ::testing::AssertionSuccess();
        std::this_thread::yield();
    }
    return ::testing::AssertionFailure() << "silent for " << found << " s, expected " << seconds;
}

TEST(ExchangeSession, searches_ever_more_rarely_while_the_way_to_the_station_stays_broken) {
    constexpr PeerId kFirstPeer = 100;  // of a ScriptedWire
    constexpr auto kStep = std::chrono::milliseconds(100);
    FakeClock clock;
    MetricsRegistry metrics;
    ScriptedWire wire;
    const ExchangeOptions options{.limits = kFakeLimits, .wait = WaitPolicy::kSpin};
    const auto server = ExchangeServer::create(options, wire.factory(), clock, metrics).value();
    ASSERT_TRUE(server->open_session(ServerRig::assignment(1), FrameWork{}).is_ok());

    // Every endpoint fails as soon as it is there. The silence tells that the server saw the time.
    size_t num_failed = 0;
    for (int step = 1; step <= 100; ++step) {
        const size_t num_searches = wire.disconnected().size();
        if (num_failed == num_searches) {
            wire.fail_peer(kFirstPeer + static_cast<PeerId>(num_searches), "unreachable");
            ++num_failed;
        }
        clock.advance(kStep);
        ASSERT_TRUE(shows_silence(metrics, 0.1 * step));
    }
    // At 0, 0.1, 0.3, 0.7, 1.5, 3.1, 5.1, 7.1 and 9.1 s, each up to two steps later.
    EXPECT_GE(wire.disconnected().size(), 7u);
    EXPECT_LE(wire.disconnected().size(), 9u);
}

}  // namespace
}  // namespace k3pod

// Connections that end, and those that never begin.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/control_fakes.h"
#include "tests/support/tcp_relay.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::HasSubstr;

std::unique_ptr<ControlServer> start_server(const std::string& listen, uint64_t process_id,
                                            ControlHandler& handler) {
    auto server = ControlServer::start(listen, test_identity("spark-1", process_id), handler);
    EXPECT_TRUE(server.is_ok()) << server.status().to_string();
    return server.is_ok() ? std::move(*server) : nullptr;
}

std::unique_ptr<ControlLink> start_link(int port, RecordingEvents& events) {
    return ControlLink::start("127.0.0.1:" + std::to_string(port), "spark-1",
                              test_identity("station", 1), test_assignment(), events);
}

double seconds_since(TimePoint start) {
    return to_seconds(SteadyClock().now() - start);
}

TEST(ControlLoss, of_a_server_is_told_and_its_restart_found) {
    RecordingHandler handler;
    RecordingEvents events;
    auto server = start_server("127.0.0.1:0", 7, handler);
    const std::string address = loopback_address(*server);
    const auto link = start_link(server->port(), events);
    const uint64_t first = handler.wait_for_assignment().session;
    ASSERT_EQ(events.wait_for_connected().process_id, 7u);

    server.reset();
    EXPECT_EQ(events.wait_for_lost().message(), "spark-1 is draining");
    server = start_server(address, 8, handler);
    EXPECT_EQ(events.wait_for_connected(2).process_id, 8u);
    EXPECT_NE(handler.wait_for_assignment(2).session, first);
}

TEST(ControlLoss, of_a_connection_is_told_without_the_words_of_grpc) {
    RecordingHandler handler;
    RecordingEvents events;
    const auto server = start_server("127.0.0.1:0", 7, handler);
    auto relay = std::make_unique<TcpRelay>(server->port());
    const auto link = start_link(relay->port(), events);
    ASSERT_EQ(events.wait_for_connected().node, "spark-1");
    relay.reset();
    const std::string why = events.wait_for_lost().message();
    EXPECT_THAT(why, ::testing::StartsWith("spark-1 is gone: "));
    EXPECT_LT(why.size(), 80u) << why;
}

TEST(ControlLoss, by_reconnect_gives_the_reason_and_a_new_session) {
    RecordingHandler handler;
    RecordingEvents events;
    const auto server = start_server("127.0.0.1:0", 7, handler);
    const auto link = start_link(server->port(), events);
    const uint64_t first = handler.wait_for_assignment().session;
    ASSERT_EQ(events.wait_for_connected().node, "spark-1");

    link->reconnect(unavailable("silent for 0.6 s"));
    EXPECT_EQ(events.wait_for_lost().message(), "silent for 0.6 s");
    EXPECT_EQ(events.wait_for_connected(2).node, "spark-1");
    EXPECT_NE(handler.wait_for_assignment(2).session, first);
}

TEST(ControlLoss, of_a_silent_link_is_seen_by_both_ends_within_five_seconds) {
    RecordingHandler handler;
    RecordingEvents events;
    const auto server = start_server("127.0.0.1:0", 7, handler);
    TcpRelay relay(server->port());
    const auto link = start_link(relay.port(), events);
    ASSERT_EQ(events.wait_for_connected().node, "spark-1");
    ASSERT_NE(handler.wait_for_assignment().session, 0u);

    const TimePoint start = SteadyClock().now();
    relay.freeze();
    EXPECT_FALSE(events.wait_for_lost().is_ok());
    EXPECT_TRUE(handler.wait_for_ends(1));
    EXPECT_LT(seconds_since(start), 5.0);
}

TEST(ControlLoss, of_nobody_is_told_as_waiting_until_the_server_comes) {
    RecordingHandler handler;
    RecordingEvents events;
    auto server = start_server("127.0.0.1:0", 7, handler);
    const std::string address = loopback_address(*server);
    const int port = server->port();
    server.reset();

    const auto link = start_link(port, events);
    EXPECT_EQ(events.wait_for_waiting().message(),
              "spark-1 is not reachable at " + address + ": Connection refused");
    server = start_server(address, 8, handler);
    EXPECT_EQ(events.wait_for_connected().process_id, 8u);
}

TEST(ControlLoss, leaves_a_peer_that_accepts_and_says_nothing_at_once) {
    TcpRelay silent(0);
    RecordingEvents events;
    auto link = start_link(silent.port(), events);
    ASSERT_FALSE(events.wait_for_waiting().is_ok());  // the attempt has a deadline of its own
    const TimePoint start = SteadyClock().now();
    link.reset();
    EXPECT_LT(seconds_since(start), 1.0);
}

TEST(ControlLoss, does_not_hold_up_a_server_that_stops_under_a_session) {
    RecordingHandler handler;
    RecordingEvents events;
    auto server = start_server("127.0.0.1:0", 7, handler);
    const auto link = start_link(server->port(), events);
    ASSERT_NE(handler.wait_for_assignment().session, 0u);
    const TimePoint start = SteadyClock().now();
    server.reset();
    EXPECT_LT(seconds_since(start), 2.0);
    EXPECT_EQ(handler.ended().size(), 1u);
}

TEST(ControlLoss, makes_late_reports_go_nowhere) {
    RecordingHandler handler;
    RecordingEvents events;
    auto server = start_server("127.0.0.1:0", 7, handler);
    auto link = start_link(server->port(), events);
    ASSERT_NE(handler.wait_for_assignment().session, 0u);
    link.reset();
    ASSERT_TRUE(handler.wait_for_ends(1));
    server.reset();
    handler.report({.phase = ServerPhase::kReady});
    EXPECT_TRUE(events.reports().empty());
}

}  // namespace
}  // namespace k3pod

// A station and a server that agree: hello, assignment, reports, status.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control_fakes.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ControlSession : public ::testing::Test {
  protected:
    void SetUp() override {
        auto server = ControlServer::start("127.0.0.1:0", test_identity("spark-1", 7), handler_);
        ASSERT_TRUE(server.is_ok()) << server.status().to_string();
        server_ = std::move(*server);
        link_ = connect(events_, 1);
    }
    std::unique_ptr<ControlLink> connect(RecordingEvents& events, uint64_t process_id) {
        return ControlLink::start(loopback_address(*server_), "spark-1",
                                  test_identity("station", process_id), test_assignment(), events);
    }

    RecordingHandler handler_;
    RecordingEvents events_, other_events_;
    std::unique_ptr<ControlServer> server_;
    std::unique_ptr<ControlLink> link_;
};

TEST_F(ControlSession, tells_the_station_who_answers) {
    const NodeIdentity server = events_.wait_for_connected();
    EXPECT_EQ(server.node, "spark-1");
    EXPECT_EQ(server.build_id, "build-a");
    EXPECT_EQ(server.process_id, 7u);
    EXPECT_EQ(server.ucx_version, "1.13.1 (/usr/lib/libucp.so.0)");
}

TEST_F(ControlSession, hands_over_the_assignment_unchanged_with_a_random_session) {
    const Assignment got = handler_.wait_for_assignment();
    EXPECT_NE(got.session, 0u);
    EXPECT_EQ(got.epoch, 3u);
    EXPECT_EQ(got.node_index, 1);
    EXPECT_EQ(got.max_rows, 16);
    EXPECT_EQ(got.shards, test_assignment().shards);
    EXPECT_EQ(got.station_address, test_assignment().station_address);
}

TEST_F(ControlSession, brings_progress_and_the_data_address_to_the_station) {
    const uint64_t session = handler_.wait_for_assignment().session;
    handler_.report({.phase = ServerPhase::kLoading, .loaded_bytes = 10, .total_bytes = 40});
    const auto [loading_session, loading] = events_.wait_for_phase(ServerPhase::kLoading);
    EXPECT_EQ(loading_session, session);
    EXPECT_EQ(loading.loaded_bytes, 10);
    EXPECT_EQ(loading.total_bytes, 40);

    handler_.report({.phase = ServerPhase::kReady,
                     .loaded_bytes = 40,
                     .total_bytes = 40,
                     .data_address = {std::byte{1}, std::byte{0}, std::byte{2}}});
    const auto [ready_session, ready] = events_.wait_for_phase(ServerPhase::kReady);
    EXPECT_EQ(ready_session, session);
    EXPECT_EQ(ready.data_address,
              (std::vector<std::byte>{std::byte{1}, std::byte{0}, std::byte{2}}));
}

TEST_F(ControlSession, brings_the_reason_of_a_failed_load) {
    ASSERT_NE(handler_.wait_for_assignment().session, 0u);
    handler_.report({.phase = ServerPhase::kFailed, .message = "shard 3 ends early"});
    EXPECT_EQ(events_.wait_for_phase(ServerPhase::kFailed).second.message, "shard 3 ends early");
}

TEST_F(ControlSession, thins_out_progress_but_sends_the_last_word) {
    ASSERT_NE(handler_.wait_for_assignment().session, 0u);
    for (int64_t i = 0; i < 5000; ++i) {
        handler_.report({.phase = ServerPhase::kLoading, .loaded_bytes = i, .total_bytes = 5000});
    }
    handler_.report({.phase = ServerPhase::kReady, .loaded_bytes = 5000, .total_bytes = 5000});
    EXPECT_EQ(events_.wait_for_phase(ServerPhase::kReady).second.loaded_bytes, 5000);
    EXPECT_LT(events_.reports().size(), 50u);
}

TEST_F(ControlSession, ends_when_the_station_leaves) {
    const uint64_t session = handler_.wait_for_assignment().session;
    link_.reset();
    ASSERT_TRUE(handler_.wait_for_ends(1));
    EXPECT_THAT(handler_.ended(), ElementsAre(session));
}

TEST_F(ControlSession, refuses_a_second_station_by_name_while_the_first_is_there) {
    ASSERT_NE(handler_.wait_for_assignment().session, 0u);
    const auto other = connect(other_events_, 2);
    EXPECT_THAT(other_events_.wait_for_waiting().message(),
                HasSubstr("spark-1 serves another station already (process 0000000000000001, this "
                          "one is 0000000000000002)"));
    EXPECT_THAT(handler_.events(), ElementsAre("hello station", "assignment"));
}

TEST_F(ControlSession, welcomes_another_station_once_the_first_has_left) {
    ASSERT_NE(handler_.wait_for_assignment().session, 0u);
    const auto other = connect(other_events_, 2);
    ASSERT_FALSE(other_events_.wait_for_waiting().is_ok());
    link_.reset();
    EXPECT_EQ(other_events_.wait_for_connected().node, "spark-1");
}

TEST_F(ControlSession, of_the_same_process_gives_way_to_its_successor) {
    const uint64_t first = handler_.wait_for_assignment().session;
    const auto successor = connect(other_events_, 1);
    const uint64_t second = handler_.wait_for_assignment(2).session;
    EXPECT_NE(second, 0u);
    EXPECT_NE(second, first);
    EXPECT_THAT(handler_.ended().front(), first);
    const std::vector<std::string> events = handler_.events();
    ASSERT_GE(events.size(), 5u);
    EXPECT_EQ(events[2], "end");  // before the successor's hello
    EXPECT_EQ(events[3], "hello station");
}

TEST_F(ControlSession, is_told_that_the_node_drains) {
    ASSERT_NE(handler_.wait_for_assignment().session, 0u);
    server_->drain();
    EXPECT_NE(events_.wait_for_phase(ServerPhase::kDraining).first, 0u);
    EXPECT_EQ(events_.wait_for_lost().message(), "spark-1 is draining");
}

TEST_F(ControlSession, is_not_opened_on_a_draining_node) {
    ASSERT_NE(handler_.wait_for_assignment().session, 0u);
    link_.reset();
    ASSERT_TRUE(handler_.wait_for_ends(1));
    server_->drain();
    const auto other = connect(other_events_, 2);
    const Status why = other_events_.wait_for_waiting();
    EXPECT_EQ(why.code(), Code::kUnavailable);
    EXPECT_THAT(why.message(), HasSubstr("spark-1 is draining"));
}

TEST_F(ControlSession, can_be_read_back_by_status) {
    const uint64_t session = handler_.wait_for_assignment().session;
    handler_.report({.phase = ServerPhase::kReady});
    ASSERT_NE(events_.wait_for_phase(ServerPhase::kReady).first, 0u);

    const auto status = read_node_status(loopback_address(*server_), kControlPatience);
    ASSERT_TRUE(status.is_ok()) << status.status().to_string();
    EXPECT_EQ(status->identity.node, "spark-1");
    EXPECT_EQ(status->identity.build_id, "build-a");
    EXPECT_EQ(status->phase, ServerPhase::kReady);
    EXPECT_EQ(status->session, session);
    EXPECT_EQ(status->epoch, 3u);
    EXPECT_EQ(status->shards, test_assignment().shards);
    EXPECT_EQ(status->num_frames, 42u);
    EXPECT_EQ(status->shard_bytes, 1234);
}

TEST_F(ControlSession, anyone_may_ask_a_server_to_look_at_its_machine) {
    const auto check = read_node_check(loopback_address(*server_), kControlPatience);
    ASSERT_TRUE(check.is_ok()) << check.status().to_string();
    EXPECT_EQ(check->identity.node, "spark-1");
    EXPECT_GT(check->unix_time_ns, 1'600'000'000'000'000'000);
    EXPECT_THAT(check->lines, ElementsAre(CheckLine{"swap", Verdict::kWarning, "1 GiB \\xff",
                                                    "none", "swapoff -a"},
                                          CheckLine{"memory", Verdict::kOk, "8 GiB", "4 GiB", ""}));
}

}  // namespace
}  // namespace k3pod

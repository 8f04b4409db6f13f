// A station and a server that differ: the refusal names both values, versions and builds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control_fakes.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What a station hears from a server with this identity.
Status refusal_by(const NodeIdentity& self, const Status& welcome = Status::ok()) {
    RecordingHandler handler;
    handler.set_welcome(welcome);
    RecordingEvents events;
    const auto server = ControlServer::start("127.0.0.1:0", self, handler);
    if (!server.is_ok()) return server.status();
    const auto link = ControlLink::start(loopback_address(**server), "spark-1",
                                         test_identity("station", 1), test_assignment(), events);
    return events.wait_for_waiting();
}

struct Difference {
    const char* name;
    void (*change)(NodeIdentity&);
    const char* expected;
};

class ControlRefusal : public ::testing::TestWithParam<Difference> {};

TEST_P(ControlRefusal, names_both_values_versions_and_builds) {
    NodeIdentity server = test_identity("spark-1", 7);
    GetParam().change(server);
    const Status why = refusal_by(server);
    EXPECT_EQ(why.code(), Code::kFailedPrecondition);
    EXPECT_THAT(why.message(),
                AllOf(HasSubstr("spark-1 at 127.0.0.1:"), HasSubstr(GetParam().expected),
                      HasSubstr("(station: control version 1, wire version 1, build "
                                "'build-a'; spark-1: control version ")));
}

INSTANTIATE_TEST_SUITE_P(
    All, ControlRefusal,
    ::testing::Values(
        Difference{"control", [](NodeIdentity& id) { id.control_version = 2; },
                   "control version differs: '1' on station, '2' on spark-1"},
        Difference{"wire", [](NodeIdentity& id) { id.wire_version = 9; },
                   "wire version differs: '1' on station, '9' on spark-1"},
        Difference{"build", [](NodeIdentity& id) { id.build_id = "build-b"; },
                   "build differs: 'build-a' on station, 'build-b' on spark-1"},
        Difference{"transport", [](NodeIdentity& id) { id.transport = "ucx/tcp"; },
                   "transport differs: 'loopback' on station, 'ucx/tcp' on spark-1"},
        Difference{"ucx", [](NodeIdentity& id) { id.ucx_version = "1.16.0 (/opt/libucp.so.0)"; },
                   "UCX version differs: '1.13.1 (/usr/lib/libucp.so.0)' on station, '1.16.0 "
                   "(/opt/libucp.so.0)' on spark-1"},
        Difference{"model", [](NodeIdentity& id) { id.model_fingerprint = 0x77; },
                   "model fingerprint differs: '0000000000001234' on station, '0000000000000077' "
                   "on spark-1"}),
    [](const auto& test) { return test.param.name; });

TEST(ControlRefusal, ignores_where_the_same_ucx_release_lies) {
    RecordingHandler handler;
    RecordingEvents events;
    NodeIdentity self = test_identity("spark-1", 7);
    self.ucx_version = "1.13.1 (/opt/ucx/libucp.so.0)";
    const auto server = ControlServer::start("127.0.0.1:0", self, handler);
    ASSERT_TRUE(server.is_ok());
    const auto link = ControlLink::start(loopback_address(**server), "spark-1",
                                         test_identity("station", 1), test_assignment(), events);
    EXPECT_EQ(events.wait_for_connected().node, "spark-1");
}

TEST(ControlRefusal, names_the_node_that_answers_at_a_wrong_address) {
    const Status why = refusal_by(test_identity("spark-2", 7));
    EXPECT_THAT(why.message(), HasSubstr("'spark-1' was dialled, but 'spark-2' answers here"));
}

TEST(ControlRefusal, brings_the_handlers_reason_and_code) {
    const Status why = refusal_by(test_identity("spark-1", 7),
                                  data_loss("model-00002.safetensors is 10 bytes short"));
    EXPECT_EQ(why.code(), Code::kDataLoss);
    EXPECT_THAT(why.message(), HasSubstr("model-00002.safetensors is 10 bytes short"));
}

TEST(ControlRefusal, of_a_node_without_a_model_comes_before_any_difference) {
    NodeIdentity server;
    server.node = "spark-1";
    const Status why =
        refusal_by(server, not_found("cannot read /models/config.json: Permission denied"));
    EXPECT_EQ(why.code(), Code::kNotFound);
    EXPECT_THAT(why.message(), HasSubstr("/models/config.json: Permission denied"));
}

TEST(ControlRefusal, ends_when_the_reason_is_gone) {
    RecordingHandler handler;
    handler.set_welcome(unavailable("not yet"));
    RecordingEvents events;
    const auto server = ControlServer::start("127.0.0.1:0", test_identity("spark-1", 7), handler);
    ASSERT_TRUE(server.is_ok());
    const auto link = ControlLink::start(loopback_address(**server), "spark-1",
                                         test_identity("station", 1), test_assignment(), events);
    ASSERT_EQ(events.wait_for_waiting().code(), Code::kUnavailable);
    handler.set_welcome(Status::ok());
    EXPECT_EQ(events.wait_for_connected().node, "spark-1");
    EXPECT_EQ(events.num_waiting(), 1u);  // the same reason is told once
}

TEST(ControlRefusal, of_an_assignment_that_no_server_can_serve_names_the_field) {
    RecordingHandler handler;
    RecordingEvents events;
    const auto server = ControlServer::start("127.0.0.1:0", test_identity("spark-1", 7), handler);
    ASSERT_TRUE(server.is_ok());
    Assignment assignment = test_assignment();
    assignment.shards[1].end = 32;  // [32, 32)
    const auto link = ControlLink::start(loopback_address(**server), "spark-1",
                                         test_identity("station", 1), assignment, events);
    EXPECT_THAT(events.wait_for_phase(ServerPhase::kFailed).second.message,
                HasSubstr("shard of layer 1, expert 7 is [32, 32)"));
}

}  // namespace
}  // namespace k3pod

// Addresses that a server cannot listen on, and servers that cannot be asked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/control_fakes.h"

namespace k3pod {
namespace {

using namespace k3pod::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ControlListen, names_the_address_that_is_in_use_and_why) {
    RecordingHandler handler;
    const auto first = ControlServer::start("127.0.0.1:0", test_identity("spark-1", 7), handler);
    ASSERT_TRUE(first.is_ok());
    const std::string address = loopback_address(**first);
    const auto second = ControlServer::start(address, test_identity("spark-2", 8), handler);
    ASSERT_FALSE(second.is_ok());
    EXPECT_EQ(second.status().code(), Code::kUnavailable);
    EXPECT_THAT(second.status().message(),
                AllOf(HasSubstr("[[expert]] spark-2 control: cannot listen on " + address),
                      HasSubstr("Address already in use")));
}

TEST(ControlListen, tells_an_address_of_another_machine_from_a_host_that_there_is_not) {
    RecordingHandler handler;
    const NodeIdentity self = test_identity("spark-1", 7);
    EXPECT_THAT(ControlServer::start("192.0.2.1:0", self, handler).status().message(),
                HasSubstr("no interface of this machine has that address"));
    EXPECT_THAT(ControlServer::start("no..host:0", self, handler).status().message(),
                HasSubstr("cannot listen on no..host:0: no such host"));
}

TEST(ControlListen, refuses_an_address_without_a_port) {
    RecordingHandler handler;
    const auto server = ControlServer::start("127.0.0.1", test_identity("spark-1", 7), handler);
    ASSERT_FALSE(server.is_ok());
    EXPECT_EQ(server.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(server.status().message(), HasSubstr("'127.0.0.1' is not host:port"));
}

TEST(ControlListen, names_the_server_that_gives_no_status) {
    std::string address;
    {
        RecordingHandler handler;
        const auto server =
            ControlServer::start("127.0.0.1:0", test_identity("spark-1", 7), handler);
        ASSERT_TRUE(server.is_ok());
        address = loopback_address(**server);
    }
    const auto status = read_node_status(address, std::chrono::seconds(2));
    ASSERT_FALSE(status.is_ok());
    EXPECT_EQ(status.status().code(), Code::kUnavailable);
    EXPECT_EQ(status.status().message(),
              "no status from " + address + " within 2.0 s: Connection refused");
}

}  // namespace
}  // namespace k3pod

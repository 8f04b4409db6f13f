#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "k3pod/fabric/link.h"

namespace k3pod {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;

class Link : public ::testing::Test {
  protected:
    void SetUp() override {
        auto probe = LinkProbe::create(transport());
        ASSERT_TRUE(probe.is_ok());
        probe_ = std::move(*probe);
        for (const char* name : {"spark-1", "spark-2"}) {
            auto end = LinkEnd::create(transport());
            ASSERT_TRUE(end.is_ok());
            ends_.push_back(std::move(*end));
            ASSERT_TRUE(ends_.back()->connect(probe_->local_address()).is_ok());
            ASSERT_TRUE(probe_->connect(ends_.back()->local_address(), name).is_ok());
        }
    }
    MakeTransport transport() {
        return [this](TransportHandler& handler) -> Result<std::unique_ptr<Transport>> {
            return make_loopback_transport(network_, handler);
        };
    }

    std::shared_ptr<LoopbackNetwork> network_ = make_loopback_network();
    std::vector<std::unique_ptr<LinkEnd>> ends_;
    std::unique_ptr<LinkProbe> probe_;
};

TEST_F(Link, messages_of_any_size_come_back) {
    for (const int64_t bytes : {0, 8, 7168, 60 << 10}) {
        const auto times = probe_->round_trips(1, bytes, 20);
        ASSERT_TRUE(times.is_ok()) << times.status().message();
        EXPECT_EQ(times->size(), 20U);
        EXPECT_THAT(*times, Each(Gt(0.0)));
    }
}

TEST_F(Link, a_message_over_a_fragment_is_refused_with_the_limit) {
    const auto times = probe_->round_trips(0, (60 << 10) + 1, 1);
    EXPECT_EQ(times.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(times.status().message(), HasSubstr("61440"));
}

TEST_F(Link, bandwidth_to_two_servers_at_once_is_that_of_each) {
    const std::vector<int32_t> both{0, 1};
    const auto rates = probe_->bandwidth(both, std::chrono::milliseconds(30));
    ASSERT_TRUE(rates.is_ok()) << rates.status().message();
    ASSERT_EQ(rates->size(), 2U);
    EXPECT_THAT(*rates, Each(Gt(0.0)));
    // Nothing is left on its way: the next message is answered by its own answer.
    EXPECT_TRUE(probe_->round_trips(0, 8, 5).is_ok());
}

TEST_F(Link, a_server_that_is_gone_is_named) {
    ends_.erase(ends_.begin());
    const auto times = probe_->round_trips(0, 8, 1);
    ASSERT_FALSE(times.is_ok());
}

}  // namespace
}  // namespace k3pod

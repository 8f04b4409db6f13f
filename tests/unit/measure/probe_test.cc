// One exchange taken apart, between ends in one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "k3pod/exchange/probe.h"

namespace k3pod {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kWork{3};
constexpr int32_t kLatent = 128;

ExchangeOptions options() {
    ExchangeOptions options;
    options.limits = {
        .latent = kLatent, .num_layers = 3, .num_experts = 8, .top_k = 4, .max_rows = 16};
    options.frame_deadline = std::chrono::seconds(20);
    return options;
}

const ProbeShape kShape{.layer = 1, .num_experts = 8, .width = 128};

// As long as real work, without giving the core away.
Status work_for_a_while(int32_t, int32_t, std::span<const Bf16>, std::span<const wire::WireEntry>,
                        std::span<float> out) {
    const auto end = std::chrono::steady_clock::now() + kWork;
    while (std::chrono::steady_clock::now() < end) {
    }
    std::ranges::fill(out, 0.37f);
    return Status::ok();
}

class Probe : public ::testing::Test {
  protected:
    void open(const FrameWork& work) {
        const auto network = make_loopback_network();
        const MakeTransport transport =
            [network](TransportHandler& handler) -> Result<std::unique_ptr<Transport>> {
            return make_loopback_transport(network, handler);
        };
        const std::vector<std::string> names{"spark-1", "spark-2"};
        auto probe = ExchangeProbe::create(options(), kShape, names, transport);
        ASSERT_TRUE(probe.is_ok()) << probe.status().message();
        probe_ = std::move(*probe);
        for (uint16_t i = 0; i < 2; ++i) {
            auto server = ProbeServer::create(options(), transport);
            ASSERT_TRUE(server.is_ok()) << server.status().message();
            servers_.push_back(std::move(*server));
            Assignment assignment;
            assignment.session = i + 1U;
            assignment.epoch = 1;
            assignment.node_index = i;
            assignment.max_rows = 16;
            assignment.station_address = probe_->local_address();
            ASSERT_TRUE(servers_[i]->open_session(assignment, work).is_ok());
            ASSERT_TRUE(
                probe_->attach(names[i], servers_[i]->local_address(), assignment.session).is_ok());
        }
    }

    std::unique_ptr<ExchangeProbe> probe_;
    std::vector<std::unique_ptr<ProbeServer>> servers_;
};

TEST_F(Probe, parts_of_an_exchange_add_up_to_the_whole_and_work_is_experts_time) {
    open(work_for_a_while);
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(probe_->exchange(3).is_ok());
    const auto exchanges = probe_->take();
    ASSERT_EQ(exchanges.size(), 5U);  // the last waits for its last figure
    for (const ExchangeParts& parts : exchanges) {
        EXPECT_NEAR(parts.hand_off_us + parts.wire_us + parts.server_us + parts.expert_us,
                    parts.total_us, 1e-6 * parts.total_us);
        EXPECT_GE(parts.expert_us, 3000);
        EXPECT_LE(parts.expert_us, parts.total_us);
        EXPECT_GT(parts.server_us, 0);
        EXPECT_GT(parts.hand_off_us, 0);
    }
}

TEST_F(Probe, figures_arrive_whole_in_replies_of_bf16_without_work) {
    open(FrameWork());
    for (int i = 0; i < 21; ++i) ASSERT_TRUE(probe_->exchange(1 + i % 16).is_ok());
    for (const ExchangeParts& parts : probe_->take()) {
        EXPECT_GE(parts.wire_us, 0);
        EXPECT_LE(parts.server_us + parts.expert_us, parts.total_us);
    }
}

TEST(ProbePlacement, cuts_every_expert_over_every_server) {
    const std::vector<std::string> names{"a", "b", "c"};
    const Placement placement = probe_placement(kShape, names);
    EXPECT_EQ(placement.slices.size(), 8U);
    EXPECT_EQ(placement.slices[5],
              (std::vector<PlacedSlice>{{0, 32, 0}, {32, 64, 1}, {64, 128, 2}}));
}

TEST(ProbePlacement, refuses_more_servers_than_an_expert_has_slices) {
    const std::vector<std::string> names(5, "x");
    const auto probe = ExchangeProbe::create(options(), kShape, names, MakeTransport());
    ASSERT_FALSE(probe.is_ok());
    EXPECT_THAT(probe.status().message(), HasSubstr("5 servers"));
    EXPECT_THAT(probe.status().message(), HasSubstr("1 to 4"));
}

}  // namespace
}  // namespace k3pod

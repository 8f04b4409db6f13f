#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lines.h"

namespace k3pod {
namespace {

using testing::facts_of;
using ::testing::HasSubstr;
using testing::line_of;
using testing::spark_needs;
using testing::station_needs;

TEST(CheckRdma, a_spark_that_is_set_up_well_has_no_finding) {
    const auto lines = check_facts(facts_of("spark", spark_needs()), spark_needs());
    for (const CheckLine& line : lines) {
        EXPECT_EQ(line.verdict, Verdict::kOk) << line.check << ": " << line.found;
        EXPECT_EQ(line.remedy, "");
    }
    EXPECT_EQ(worst_of(lines), Verdict::kOk);
    EXPECT_EQ(line_of(lines, "gid rocep1s0f0:1").found,
              "index 3, ::ffff:10.0.1.1 (first RoCE v2 entry with an IPv4 address)");
    EXPECT_EQ(line_of(lines, "link rate rocep1s0f0:1").found, "200 Gb/s");
    EXPECT_EQ(line_of(lines, "pcie rocep1s0f0:1").found, "x4 at 32 GT/s");
}

TEST(CheckRdma, a_controller_wired_at_x2_is_a_warning_that_names_the_firmware) {
    NodeFacts facts = facts_of("spark", spark_needs());
    facts.ports[0].pcie.width = facts.ports[0].pcie.max_width = 2;
    const auto line = line_of(check_facts(facts, spark_needs()), "pcie rocep1s0f0:1");
    EXPECT_EQ(line.verdict, Verdict::kWarning);
    EXPECT_EQ(line.found, "x2 at 32 GT/s");
    EXPECT_EQ(line.expected, "x4 at 32 GT/s");
    EXPECT_THAT(line.remedy, HasSubstr("fwupdmgr"));
}

TEST(CheckRdma, the_other_function_of_the_cable_must_be_up_as_well) {
    NodeFacts facts = facts_of("spark", spark_needs());
    facts.ports[2].is_active = false;
    facts.ports[2].state = "PORT_DOWN";
    const auto line = line_of(check_facts(facts, spark_needs()), "cable rocep1s0f0:1");
    EXPECT_EQ(line.verdict, Verdict::kWarning);
    EXPECT_EQ(line.found, "its other function roceP2p1s0f0:1 is PORT_DOWN");
    EXPECT_THAT(line.remedy, HasSubstr("ip link set enP2p1s0f0np0 up"));
}

TEST(CheckRdma, a_station_with_a_small_mtu_is_warned) {
    const auto lines = check_facts(facts_of("station", station_needs()), station_needs());
    const auto line = line_of(lines, "rdma mtu mlx5_0:1");
    EXPECT_EQ(line.verdict, Verdict::kWarning);
    EXPECT_EQ(line.found, "1024");
    EXPECT_EQ(line.expected, "4096");
    EXPECT_THAT(line.remedy, HasSubstr("ip link set enp3s0f0np0 mtu 9000"));
}

TEST(CheckRdma, a_link_slower_than_the_switch_port_is_warned) {
    NodeNeeds needs = station_needs();
    needs.port_rate_bits_per_s = 800'000'000'000;
    const auto line = line_of(check_facts(facts_of("station", needs), needs), "link rate mlx5_0:1");
    EXPECT_EQ(line.verdict, Verdict::kWarning);
    EXPECT_EQ(line.found, "400 Gb/s");
    EXPECT_EQ(line.expected, "800 Gb/s");
}

TEST(CheckRdma, a_port_that_is_down_or_without_address_fails) {
    NodeNeeds needs = spark_needs();
    needs.device = "rocep1s0f1";  // its first port
    const auto lines = check_facts(facts_of("spark", needs), needs);
    EXPECT_EQ(line_of(lines, "rdma port rocep1s0f1:1").verdict, Verdict::kFailure);
    EXPECT_EQ(line_of(lines, "rdma port rocep1s0f1:1").found, "PORT_DOWN");
    const auto gid = line_of(lines, "gid rocep1s0f1:1");
    EXPECT_EQ(gid.verdict, Verdict::kFailure);
    EXPECT_EQ(gid.found, "none of 2 entries: link-local or RoCE v1 only");
}

TEST(CheckRdma, a_device_that_is_not_there_fails_and_lists_those_that_are) {
    NodeNeeds needs = spark_needs();
    needs.device = "mlx5_7:1";
    const auto line = line_of(check_facts(facts_of("spark", needs), needs), "rdma");
    EXPECT_EQ(line.verdict, Verdict::kFailure);
    EXPECT_EQ(line.found, "rocep1s0f0:1, rocep1s0f1:1, roceP2p1s0f0:1, roceP2p1s0f1:1");
    EXPECT_EQ(line.expected, "device mlx5_7:1");
}

TEST(CheckRdma, is_no_failure_on_a_machine_without_it_where_tcp_is_used) {
    NodeNeeds needs{.node = "station", .peers = {{"spark-1", "127.0.0.1:7001"}}};
    const auto lines = check_facts(facts_of("plain", needs), needs);
    EXPECT_EQ(worst_of(lines), Verdict::kOk);
    EXPECT_EQ(line_of(lines, "rdma").expected, "not needed (transport is not rc)");
}

TEST(CheckRdma, is_a_failure_on_a_machine_without_it_where_rc_is_used) {
    NodeNeeds needs{.node = "station", .transport = TransportName::kRc};
    const auto lines = check_facts(facts_of("plain", needs), needs);
    EXPECT_EQ(line_of(lines, "rdma").verdict, Verdict::kFailure);
    EXPECT_EQ(line_of(lines, "ucx").verdict, Verdict::kFailure);
}

}  // namespace
}  // namespace k3pod

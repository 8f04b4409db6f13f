// What is read of a Spark with a ConnectX-7 of four functions, and of a machine that has none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "k3pod/fabric/facts.h"
#include "recorded_system.h"

namespace k3pod {
namespace {

using ::testing::HasSubstr;
using testing::RecordedSystem;

const char* const kUcx = "1.17.0 (/usr/lib/aarch64-linux-gnu/libucp.so.0)";

TEST(Facts, of_a_spark_name_each_function_with_its_interface_and_pcie_link) {
    const NodeFacts facts = gather_facts(RecordedSystem("spark"), {.ucx_version = kUcx});
    ASSERT_EQ(facts.ports.size(), 4U);
    const RdmaPort& port = facts.ports[0];
    EXPECT_EQ(port.name(), "rocep1s0f0:1");
    EXPECT_EQ(port.interface, "enp1s0f0np0");
    EXPECT_EQ(port.pci_address, "0000:01:00.0");
    EXPECT_EQ(port.pcie.width, 4);
    EXPECT_EQ(port.pcie.max_gigatransfers, 32);
    EXPECT_EQ(facts.ports[2].pci_address, "0002:01:00.0");
}

TEST(Facts, of_a_spark_have_limits_memory_and_versions) {
    const NodeFacts facts =
        gather_facts(RecordedSystem("spark"), {.ucx_version = kUcx, .wants_gpus = true});
    EXPECT_EQ(facts.limits.locked_bytes, -1);
    EXPECT_EQ(facts.limits.open_files, 65536);
    EXPECT_EQ(facts.memory.total_bytes, 128'524'288'000);
    EXPECT_EQ(facts.memory.large_pages, "madvise");
    EXPECT_EQ(facts.kernel, "6.11.0-1016-nvidia");
    EXPECT_EQ(facts.ucx.version, "1.17.0");
    EXPECT_TRUE(facts.ucx.has_rdma);
    ASSERT_EQ(facts.gpus.size(), 1U);
    EXPECT_EQ(facts.gpus[0].name, "NVIDIA GB10");
    EXPECT_EQ(facts.gpus[0].clock_mhz, 2087);
    EXPECT_EQ(facts.gpus[0].power_state, "P0");
}

TEST(Facts, of_a_machine_without_rdma_say_why_there_is_none) {
    const NodeFacts facts =
        gather_facts(RecordedSystem("plain"), {.ucx_version = "1.13.1 (/usr/lib/libucp.so.0)"});
    EXPECT_TRUE(facts.ports.empty());
    EXPECT_THAT(facts.why_no_ports, HasSubstr("no RDMA"));
    EXPECT_FALSE(facts.ucx.has_rdma);
    EXPECT_EQ(facts.limits.locked_bytes, 8'388'608);
}

TEST(Facts, tell_of_a_peer_without_a_route) {
    const NodeFacts facts = gather_facts(RecordedSystem("spark"),
                                         {.peers = {{"a", "10.0.1.2:7000"}, {"b", "10.9.9.9:1"}}});
    ASSERT_EQ(facts.peers.size(), 2U);
    EXPECT_EQ(facts.peers[0].route->interface, "enp1s0f0np0");
    EXPECT_EQ(facts.peers[1].route.status().code(), Code::kUnavailable);
}

TEST(Gid, is_the_first_roce_v2_entry_with_an_ipv4_address) {
    RdmaPort port;
    port.gids = {{0, "fe80::1", false},
                 {1, "fe80::1", true},
                 {2, "::ffff:10.0.0.1", false},
                 {5, "::ffff:10.0.0.1", true}};
    EXPECT_EQ(choose_gid(port)->index, 5);
}

TEST(Gid, is_none_where_only_link_local_entries_are) {
    RdmaPort port;
    port.gids = {{0, "fe80::1", false}, {1, "fe80::1", true}};
    EXPECT_FALSE(choose_gid(port).has_value());
    port.is_ethernet = false;
    EXPECT_EQ(choose_gid(port)->index, 0);  // InfiniBand has no addresses to choose by.
}

// Not a recording: what every machine that runs tests has.
TEST(ThisSystem, reads_the_kernels_files_and_finds_a_way_to_itself) {
    const auto system = this_system();
    const NodeFacts facts =
        gather_facts(*system, {.peers = {{"self", "127.0.0.1:1"}}, .ucx_version = kUcx});
    EXPECT_GT(facts.memory.total_bytes, 0);
    EXPECT_NE(facts.limits.open_files, 0);
    EXPECT_FALSE(facts.kernel.empty());
    ASSERT_TRUE(facts.peers[0].route.is_ok()) << facts.peers[0].route.status().message();
    EXPECT_EQ(facts.peers[0].route->source, "127.0.0.1");
    EXPECT_EQ(facts.peers[0].route->interface, "lo");
}

TEST(ThisSystem, names_a_host_that_does_not_exist) {
    const auto route = this_system()->route_to("no-such-host.invalid:7000");
    ASSERT_FALSE(route.is_ok());
    EXPECT_THAT(route.status().message(), HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace k3pod

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

TEST(CheckHost, too_little_locked_memory_fails_over_rc_only) {
    NodeNeeds needs = station_needs();
    const auto line = line_of(check_facts(facts_of("station", needs), needs), "locked memory");
    EXPECT_EQ(line.verdict, Verdict::kFailure);
    EXPECT_EQ(line.found, "8388608");
    EXPECT_EQ(line.expected, "67108864 or more");
    EXPECT_THAT(line.remedy, HasSubstr("LimitMEMLOCK=infinity"));
    needs = {.node = "station"};
    EXPECT_EQ(line_of(check_facts(facts_of("station", needs), needs), "locked memory").verdict,
              Verdict::kOk);
}

TEST(CheckHost, few_open_files_are_a_warning) {
    const auto lines = check_facts(facts_of("station", station_needs()), station_needs());
    EXPECT_EQ(line_of(lines, "open files").verdict, Verdict::kWarning);
    EXPECT_EQ(line_of(lines, "open files").found, "1024");
}

TEST(CheckHost, memory_that_the_plan_wants_and_the_machine_lacks_is_a_failure) {
    NodeNeeds needs = spark_needs();
    needs.memory_bytes = int64_t{120} << 30;
    const auto line = line_of(check_facts(facts_of("spark", needs), needs), "memory");
    EXPECT_EQ(line.verdict, Verdict::kFailure);
    EXPECT_EQ(line.found, "115.4 GiB available of 119.7 GiB");
    EXPECT_EQ(line.expected, "120.0 GiB still to be taken");
}

TEST(CheckHost, page_cache_is_in_the_way_of_a_gpu_only) {
    NodeNeeds needs = station_needs();  // 480 GB of 470 GiB available, 300 GiB free
    EXPECT_EQ(line_of(check_facts(facts_of("station", needs), needs), "page cache").verdict,
              Verdict::kWarning);
    needs.needs_gpu = false;
    EXPECT_EQ(line_of(check_facts(facts_of("station", needs), needs), "page cache").verdict,
              Verdict::kOk);
}

TEST(CheckHost, swap_in_use_is_a_warning_and_unused_swap_is_none_without_a_gpu) {
    NodeNeeds needs = station_needs();
    EXPECT_EQ(line_of(check_facts(facts_of("station", needs), needs), "swap").verdict,
              Verdict::kWarning);
    needs = {.node = "station"};
    EXPECT_EQ(line_of(check_facts(facts_of("plain", needs), needs), "swap").verdict, Verdict::kOk);
}

TEST(CheckHost, a_peer_behind_another_interface_is_a_warning) {
    const auto lines = check_facts(facts_of("station", station_needs()), station_needs());
    EXPECT_EQ(line_of(lines, "route to spark-1").verdict, Verdict::kOk);
    const auto line = line_of(lines, "route to spark-2");
    EXPECT_EQ(line.verdict, Verdict::kWarning);
    EXPECT_EQ(line.found, "from 192.168.0.7 over enP5p9s0");
    EXPECT_EQ(line.expected, "10.0.1.2:7000 over enp3s0f0np0");
}

TEST(CheckHost, a_peer_without_a_route_is_a_failure) {
    const NodeNeeds needs{.node = "station", .peers = {{"spark-9", "10.9.9.9:7000"}}};
    const auto line = line_of(check_facts(facts_of("plain", needs), needs), "route to spark-9");
    EXPECT_EQ(line.verdict, Verdict::kFailure);
    EXPECT_EQ(line.found, "no route: Network is unreachable");
}

TEST(CheckGpu, a_clock_over_its_cap_is_a_warning_with_the_command) {
    NodeNeeds needs = spark_needs();
    needs.gpu_clock_mhz = 1800;
    const auto line = line_of(check_facts(facts_of("spark", needs), needs), "gpu clock");
    EXPECT_EQ(line.verdict, Verdict::kWarning);
    EXPECT_EQ(line.found, "2087 MHz in P0, maximum 3003 MHz");
    EXPECT_EQ(line.remedy, "nvidia-smi -lgc 0,1800");
}

TEST(CheckGpu, a_clock_far_below_what_it_should_be_is_a_low_power_state) {
    NodeFacts facts = facts_of("spark", spark_needs());
    facts.gpus[0].clock_mhz = 851;
    const auto line = line_of(check_facts(facts, spark_needs()), "gpu clock");
    EXPECT_EQ(line.verdict, Verdict::kWarning);
    EXPECT_THAT(line.remedy, HasSubstr("low-power state"));
}

TEST(CheckGpu, none_where_the_pod_file_wants_one_is_a_failure) {
    const NodeNeeds needs{.node = "station", .needs_gpu = true};
    const auto line = line_of(check_facts(facts_of("plain", needs), needs), "gpu");
    EXPECT_EQ(line.verdict, Verdict::kFailure);
    EXPECT_THAT(line.found, HasSubstr("nvidia-smi fails"));
}

TEST(Needs, of_a_spark_follow_from_the_pod_file) {
    const auto pod = read_pod_config(std::string(K3POD_SOURCE_DIR) + "/configs/k3-pod.toml");
    ASSERT_TRUE(pod.is_ok()) << pod.status().message();
    const NodeNeeds needs = needs_of(*pod, "spark-1", 4 << 20);
    EXPECT_EQ(needs.transport, TransportName::kRc);
    EXPECT_EQ(needs.device, "mlx5_0:1");
    EXPECT_EQ(needs.port_rate_bits_per_s, 200'000'000'000);
    EXPECT_EQ(needs.gpu_clock_mhz, 2100);
    EXPECT_EQ(needs.memory_bytes, pod->find_expert("spark-1")->budget_bytes() - (4 << 20));
    EXPECT_EQ(needs.peers.size(), 7U);
    EXPECT_EQ(needs_of(*pod, "station").peers.size(), 8U);
}

}  // namespace
}  // namespace k3pod

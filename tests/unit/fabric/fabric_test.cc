#include "k3pod/placement/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace k3pod {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Pod {
    FabricConfig fabric;
    std::vector<std::string> servers;
    FabricReport check() const { return check_fabric(fabric, servers); }
};

void cable(Pod& pod, const std::string& from, const std::string& to, int32_t length_mm = 1000,
           CableKind kind = CableKind::kPassiveCopper) {
    pod.fabric.cables.push_back({from, to, kind, length_mm});
}

// Two switches of four cages, each 2 x 200 Gb/s, joined by one trunk, the station on both.
Pod two_switches(int servers_on_a, int servers_on_b) {
    Pod pod;
    pod.fabric.switches = {{"switch-a", 4, 2, 200'000'000'000},
                           {"switch-b", 4, 2, 200'000'000'000}};
    cable(pod, "switch-a", "switch-b");
    cable(pod, "station", "switch-a");
    cable(pod, "switch-b", "station");
    for (int i = 0; i < servers_on_a + servers_on_b; ++i) {
        pod.servers.push_back("spark-" + std::to_string(i + 1));
        cable(pod, pod.servers.back(), i < servers_on_a ? "switch-a" : "switch-b");
    }
    return pod;
}

std::vector<std::string> texts(const FabricReport& report, bool problems) {
    std::vector<std::string> all;
    for (const Finding& finding : report.findings) {
        if (finding.is_problem == problems) all.push_back(finding.text);
    }
    return all;
}
std::vector<std::string> facts(const FabricReport& report) {
    return texts(report, false);
}
std::vector<std::string> problems(const FabricReport& report) {
    return texts(report, true);
}

TEST(Fabric, two_switches_of_four_cages_have_room_for_four_and_four) {
    const FabricReport report = two_switches(4, 4).check();
    EXPECT_FALSE(report.has_problems());
    ASSERT_EQ(report.switches.size(), 2u);
    EXPECT_EQ(report.switches[0].room, 4);
    EXPECT_EQ(report.switches[1].room, 4);
    EXPECT_EQ(report.station_bits_per_s, 400'000'000'000);
    EXPECT_THAT(
        facts(report),
        ElementsAre("switch-a: 4 cages, 1 for the trunk, 1 for the station, 2 broken out 2 x 200 "
                    "Gb/s: room for 4 expert servers, 4 attached",
                    "switch-b: 4 cages, 1 for the trunk, 1 for the station, 2 broken out 2 x 200 "
                    "Gb/s: room for 4 expert servers, 4 attached",
                    "the switches have room for 4 + 4 expert servers, the pod has 8",
                    "the trunk between switch-a and switch-b carries 400 Gb/s; the 4 expert "
                    "servers of one side send 800 Gb/s: oversubscribed 2:1",
                    "the station has 2 legs, 400 Gb/s in all; the expert servers have 1600 Gb/s: "
                    "4:1",
                    "2 expert servers more on switch-a or switch-b would need a cage that is not "
                    "there; it would cost the trunk (a lost leg of the station then cuts a switch "
                    "off), or a "
                    "leg of the station (200 Gb/s in all instead of 400 Gb/s; 1200 Gb/s of expert "
                    "servers then cross a trunk of 400 Gb/s, 3:1)"));
}

TEST(Fabric, a_third_pair_on_one_switch_is_a_cage_too_many) {
    EXPECT_THAT(problems(two_switches(6, 2).check()),
                ElementsAre("switch-a: 4 cages, 1 for the trunk, 1 for the station, 2 broken out 2 "
                            "x 200 Gb/s: room for 4 expert servers, 6 attached; 1 cage too few"));
}

TEST(Fabric, a_half_filled_cage_is_a_cage) {
    EXPECT_THAT(problems(two_switches(4, 3).check()), IsEmpty());
    EXPECT_THAT(problems(two_switches(5, 3).check()).size(), 1u);
    EXPECT_THAT(facts(two_switches(4, 2).check()),
                Contains("2 expert servers more on switch-b would find a free cage"));
}

TEST(Fabric, machines_without_a_cable_are_named) {
    Pod pod = two_switches(4, 4);
    std::erase_if(pod.fabric.cables, [](const CableConfig& c) {
        return c.from == "spark-3" || c.from == "station" || c.to == "station";
    });
    EXPECT_THAT(problems(pod.check()), ElementsAre("spark-3 has no cable to a switch",
                                                   "the station has no cable to a switch"));
}

TEST(Fabric, switches_without_a_trunk_meet_at_the_station) {
    Pod pod = two_switches(6, 2);
    pod.fabric.cables.erase(pod.fabric.cables.begin());
    EXPECT_FALSE(pod.check().has_problems());
    EXPECT_THAT(facts(pod.check()),
                Contains("switch-a and switch-b have no trunk: only the station reaches the "
                         "servers of both"));
}

TEST(Fabric, passive_copper_over_three_metres_is_refused_and_other_cables_are_not) {
    Pod pod = two_switches(1, 1);
    pod.fabric.cables[3].length_mm = 3000;
    EXPECT_THAT(problems(pod.check()), IsEmpty());
    pod.fabric.cables[3].length_mm = 3500;
    EXPECT_THAT(problems(pod.check()),
                ElementsAre("the cable from spark-1 to switch-a is passive copper of 3.5 m; "
                            "passive copper reaches 3 m: take a shorter one, active copper or "
                            "optics"));
    pod.fabric.cables[3].kind = CableKind::kActiveCopper;
    EXPECT_THAT(problems(pod.check()), IsEmpty());
    pod.fabric.cables[3].kind = CableKind::kOptical;
    EXPECT_THAT(problems(pod.check()), IsEmpty());
}

TEST(Fabric, the_whole_pod_is_too_much_for_one_line) {
    Pod pod = two_switches(4, 4);
    pod.fabric.power = {
        .line_watts = 1440, .station_watts = 1600, .expert_server_watts = 147, .switch_watts = 100};
    EXPECT_THAT(problems(pod.check()),
                ElementsAre("8 x 147 W of expert servers, 2 x 100 W of switches and 1600 W of the "
                            "station are 2976 W; the line carries 1440 W continuously, 1536 W too "
                            "few: give the station a line of its own, the others take 1376 W"));
    pod.fabric.power.station_watts = 0;
    EXPECT_THAT(facts(pod.check()),
                Contains("8 x 147 W of expert servers, 2 x 100 W of switches and 0 W of the "
                         "station are 1376 W; the line carries 1440 W continuously, 64 W are "
                         "left"));
    pod.fabric.power.switch_watts = 133;
    EXPECT_THAT(problems(pod.check()),
                ElementsAre("8 x 147 W of expert servers, 2 x 133 W of switches and 0 W of the "
                            "station are 1442 W; the line carries 1440 W continuously, 2 W too "
                            "few: spread the machines over more lines"));
}

TEST(Fabric, nothing_given_nothing_found) {
    EXPECT_THAT(check_fabric({}, std::vector<std::string>{"spark-1"}).findings, IsEmpty());
}

TEST(Fabric, one_switch_without_servers_is_described) {
    Pod pod;
    pod.fabric.switches = {{"only", 1, 1, 100'000'000'000}};
    cable(pod, "station", "only");
    EXPECT_FALSE(pod.check().has_problems());
    EXPECT_THAT(facts(pod.check()),
                Contains("1 expert server more on only would need a cage that is not there; it "
                         "would cost a leg of the station (0 Gb/s in all instead of 100 Gb/s; "
                         "nothing then joins it to the station)"));
}

}  // namespace
}  // namespace k3pod

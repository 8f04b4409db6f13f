// Cables and power in a pod file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "k3pod/config/pod_config.h"

namespace k3pod {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPod = R"([pod]
model = "m"
[[expert]]
name = "spark-1"
control = "127.0.0.1:7001"
expert_budget = "16 MiB"
)";
constexpr const char* kSwitch = R"([[switch]]
name = "left"
cages = 4
ports_per_cage = 2
port_rate = "200 Gb/s"
)";
constexpr const char* kCable = R"([[cable]]
from = "spark-1"
to = "left"
length = "50 cm"
)";

Result<PodConfig> parse(const std::string& more) {
    return parse_pod_config(kPod + more, "/pod.toml");
}

std::string refusal(const std::string& more) {
    const auto config = parse(more);
    EXPECT_FALSE(config.is_ok()) << more;
    if (config.is_ok()) return "";
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
    return config.status().message();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

TEST(FabricConfig, switches_cables_and_power_are_read) {
    const auto config = parse(std::string(kSwitch) + kCable +
                              "kind = \"active copper\"\n[power]\nline = \"1.44 kW\"\nswitch = "
                              "\"90 W\"\n");
    ASSERT_TRUE(config) << config.status().message();
    ASSERT_EQ(config->fabric.switches.size(), 1u);
    EXPECT_EQ(config->fabric.switches[0], (SwitchConfig{"left", 4, 2, 200'000'000'000}));
    ASSERT_EQ(config->fabric.cables.size(), 1u);
    EXPECT_EQ(config->fabric.cables[0],
              (CableConfig{"spark-1", "left", CableKind::kActiveCopper, 500}));
    EXPECT_EQ(config->fabric.power, (PowerConfig{1440, 0, 0, 90}));
}

TEST(FabricConfig, without_them_nothing_is_given) {
    EXPECT_EQ(parse("")->fabric, FabricConfig());
}

TEST(FabricConfig, printed_sections_read_back_the_same) {
    const auto config = parse(std::string(kSwitch) + kCable + "[power]\nline = \"1440 W\"\n");
    ASSERT_TRUE(config) << config.status().message();
    const auto again = parse_pod_config(to_toml(*config), config->file);
    ASSERT_TRUE(again) << again.status().message() << to_toml(*config);
    EXPECT_EQ(*again, *config);
}

TEST(FabricConfig, switches_that_cannot_be_are_refused) {
    EXPECT_THAT(refusal("[[switch]]\nname = \"s\"\nport_rate = \"1 Gb/s\"\n"),
                HasSubstr("[[switch]] lacks 'cages'"));
    for (const char* cages : {"0", "-1", "1025", "\"4\"", "4.5", "99999999999999999999"}) {
        EXPECT_NE(refusal(replaced(kSwitch, "cages = 4", std::string("cages = ") + cages)), "");
    }
    for (const char* port_rate :
         {"0 Gb/s", "-1 Gb/s", "200 GB/s", "200", "1e99 Gb/s", "nan Gb/s", "101 Tb/s", ""}) {
        EXPECT_THAT(refusal(replaced(kSwitch, "200 Gb/s", port_rate)), HasSubstr("port_rate"))
            << port_rate;
    }
    EXPECT_THAT(refusal(std::string(kSwitch) + kSwitch),
                HasSubstr("[[switch]] 'left' has the name of another machine"));
    EXPECT_THAT(refusal(replaced(kSwitch, "left", "spark-1")), HasSubstr("another machine"));
    EXPECT_THAT(refusal("switch = 3\n"), HasSubstr("unknown key 'switch' in [[expert]]"));
    EXPECT_THAT(refusal("[switch]\ncages = 4\n"),
                HasSubstr("'switch' is written as [[switch]] tables"));
}

TEST(FabricConfig, cables_to_nowhere_are_refused_with_their_ends) {
    const std::string all = std::string(kSwitch) + kCable;
    EXPECT_EQ(refusal(replaced(all, "to = \"left\"", "to = \"right\"")),
              "/pod.toml: [[cable]] from 'spark-1' to 'right': there is no 'right'; cables join "
              "'station', expert servers and switches by their names");
    EXPECT_THAT(refusal(replaced(all, "to = \"left\"", "to = \"station\"")),
                HasSubstr("a cable has a switch at one end at least"));
    EXPECT_THAT(refusal(replaced(all, "from = \"spark-1\"", "from = \"left\"")),
                HasSubstr("another machine at the other"));
    EXPECT_THAT(refusal(replaced(all, "50 cm", "0 m")), HasSubstr("[[cable]] length"));
    EXPECT_THAT(refusal(replaced(all, "50 cm", "11 km")), HasSubstr("is not from 1 mm to 10000 m"));
    EXPECT_THAT(refusal(all + "kind = \"rope\"\n"),
                HasSubstr("\"rope\" is not one of \"passive copper\", \"active copper\", "
                          "\"optical\""));
    EXPECT_THAT(refusal(all + "lenght = \"1 m\"\n"), HasSubstr("did you mean 'length'?"));
}

TEST(FabricConfig, power_without_a_line_is_refused) {
    EXPECT_THAT(refusal("[power]\nswitch = \"90 W\"\n"), HasSubstr("[power] lacks 'line'"));
    EXPECT_THAT(refusal("[power]\nline = \"1440\"\n"), HasSubstr("[power] line"));
    EXPECT_THAT(refusal("[power]\nline = \"2 MW\"\n"), HasSubstr("is not from 1 W to 1000 kW"));
}

}  // namespace
}  // namespace k3pod

#include "k3pod/config/pod_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace k3pod {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr const char* kMinimal = R"([pod]
model = "../models/k3-tiny"
[[expert]]
name = "spark-1"
control = "127.0.0.1:7001"
expert_budget = "16 MiB"
)";

Result<PodConfig> parse(const std::string& text) {
    return parse_pod_config(text, "/etc/k3pod/pod.toml");
}

std::string refusal(const std::string& text) {
    const auto config = parse(text);
    EXPECT_FALSE(config.is_ok()) << text;
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
    return config.status().message();
}

TEST(PodConfig, minimal_file_gets_documented_defaults) {
    const auto config = parse(kMinimal);
    ASSERT_TRUE(config.is_ok()) << config.status().message();
    EXPECT_EQ(config->name, "pod");
    EXPECT_EQ(config->model, "/etc/models/k3-tiny");
    EXPECT_EQ(config->station.served_model_name, "k3-tiny");
    EXPECT_EQ(config->station.listen, "127.0.0.1:8000");
    EXPECT_EQ(config->station.max_num_seqs, 16);
    EXPECT_EQ(config->exchange.frame_deadline, milliseconds(1000));
    ASSERT_EQ(config->experts.size(), 1u);
    EXPECT_EQ(config->experts[0].expert_budget_bytes, 16777216);
    EXPECT_EQ(config->experts[0].http, "");
    EXPECT_NE(config->find_expert("spark-1"), nullptr);
    EXPECT_EQ(config->find_expert("spark-2"), nullptr);
}

TEST(PodConfig, printed_configuration_reads_back_the_same) {
    for (const char* name : {"tiny", "tiny-8", "k3-pod"}) {
        const std::string path = std::string(K3POD_SOURCE_DIR) + "/configs/" + name + ".toml";
        const auto config = read_pod_config(path);
        ASSERT_TRUE(config.is_ok()) << config.status().message();
        const auto again = parse_pod_config(to_toml(*config), config->file);
        ASSERT_TRUE(again.is_ok()) << again.status().message() << to_toml(*config);
        EXPECT_EQ(*again, *config);
    }
}

TEST(PodConfig, the_real_pods_file_names_every_key) {
    const auto config = read_pod_config(std::string(K3POD_SOURCE_DIR) + "/configs/k3-pod.toml");
    ASSERT_TRUE(config.is_ok());
    std::ifstream in(config->file);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    std::istringstream printed(to_toml(*config));
    for (std::string line; std::getline(printed, line);) {
        if (const size_t eq = line.find(" = "); eq != std::string::npos) {
            EXPECT_THAT(text, HasSubstr("\n" + line.substr(0, eq) + " = "));
        }
    }
    EXPECT_EQ(config->experts.size(), 8u);
}

TEST(PodConfig, misspelt_key_is_refused_with_line_and_nearest_key) {
    EXPECT_EQ(refusal(std::string(kMinimal) + "expert_buget = 1\n"),
              "/etc/k3pod/pod.toml:7: unknown key 'expert_buget' in [[expert]]; did you mean "
              "'expert_budget'?");
}

TEST(PodConfig, key_of_another_section_is_refused_with_that_section) {
    EXPECT_THAT(refusal("[pod]\nmodel = 'm'\ndrain_timeout = '1 s'\n"),
                HasSubstr(":3: unknown key 'drain_timeout' in [pod]; it belongs in [station]"));
}

TEST(PodConfig, unknown_section_and_top_level_key_are_refused) {
    EXPECT_THAT(refusal("[staton]\n"),
                HasSubstr("unknown section or key 'staton'; did you mean 'station'?"));
    EXPECT_THAT(refusal("model = 'm'\n"), HasSubstr("it belongs in [pod]"));
    EXPECT_THAT(refusal("pod = 3\n"), HasSubstr("'pod' must be a section, [pod]"));
    EXPECT_THAT(refusal("[expert]\nname='a'\n"), HasSubstr("[[expert]]"));
}

TEST(PodConfig, duplicate_key_is_refused_with_its_line) {
    EXPECT_THAT(refusal("[pod]\nmodel = 'a'\nmodel = 'b'\n"), HasSubstr("pod.toml:3: column"));
}

TEST(PodConfig, missing_required_keys_are_named) {
    EXPECT_THAT(refusal("[station]\n"), HasSubstr("[pod] lacks 'model'"));
    EXPECT_THAT(refusal("[pod]\nname='x'\n"),
                HasSubstr("[pod] lacks 'model', which has no default"));
    EXPECT_THAT(refusal("[pod]\nmodel='m'\n"), HasSubstr("no node holds experts"));
    EXPECT_THAT(refusal("[pod]\nmodel='m'\n[[expert]]\nname='a'\ncontrol='h:1'\n"),
                HasSubstr("[[expert]] lacks 'expert_budget'"));
}

struct BadValue {
    const char* line;
    const char* message;
};

TEST(PodConfig, wrong_values_say_what_was_found_and_what_is_allowed) {
    const BadValue cases[] = {
        {"max_num_seqs = 0", "[station] max_num_seqs: 0 is outside 1 to 1024"},
        {"max_num_seqs = -3", "-3 is outside 1 to 1024"},
        {"max_num_seqs = '8'", "8 is not a whole number"},
        {"max_num_seqs = 1.5", "a fraction is not a whole number"},
        {"max_num_seqs = 600", "max_batch_tokens 512 is below 616"},
        {"drain_timeout = '3 weeks'", "'3 weeks' is not a time"},
        {"drain_timeout = 3", "3 is not a time such as"},
        {"expert_budget = '4 gigs'", "'4 gigs' is not a size"},
        {"expert_budget = '-4'", "'-4' is not a size"},
        {"expert_budget = '2e30 GiB'", "is not a size"},
        {"max_body = '10 B'", "max_body 10 B is below the least allowed, 1 KiB"},
        {"backend = 'rocm'", "\"rocm\" is not one of \"cpu\", \"cuda\""},
        {"backend = true", "\"true\" is not one of"},
        {"listen = '127.0.0.1'", "'127.0.0.1' is not an address"},
        {"listen = '127.0.0.1:99999'", "is not an address"},
        {"listen = 'a b:1'", "is not an address"},
        {"served_model_name = ''", "must not be empty"},
        {"served_model_name = ['a']", "an array is not a string"},
    };
    for (const BadValue& bad : cases) {
        const std::string text = std::string("[station]\n") + bad.line + "\n" + kMinimal;
        EXPECT_THAT(refusal(text), HasSubstr(bad.message)) << bad.line;
    }
}

constexpr const char* kTiers = R"([pod]
model = "/m"
[station.hbm]
memory = "252 GB"
reserve = { workspace = "3 GiB", engine = "2 GiB" }
bandwidth = "7.1 TB/s"
[station.host]
expert_budget = "1 GiB"
[placement]
mode = "sliced"
pack = "mxfp4"
batch_tokens = 8
traces = ["a.json", "/b.json"]
[[expert]]
name = "spark-1"
control = "127.0.0.1:7001"
memory = "119.7 GiB"
reserve = { os = "15.21 GiB" }
bandwidth = "208 GB/s"
)";

TEST(PodConfig, memories_have_named_reserves_and_a_bandwidth) {
    const auto config = parse(kTiers);
    ASSERT_TRUE(config.is_ok()) << config.status().message();
    const MemoryConfig& hbm = config->station.hbm;
    EXPECT_EQ(hbm.memory_bytes, 252'000'000'000);
    EXPECT_EQ(hbm.reserve, (std::vector<ReserveLine>{{"engine", int64_t{2} << 30},
                                                     {"workspace", int64_t{3} << 30}}));
    EXPECT_EQ(hbm.bandwidth_bytes_per_s, 7'100'000'000'000);
    EXPECT_EQ(config->station.host.budget_bytes(), int64_t{1} << 30);
    EXPECT_EQ(config->experts[0].bandwidth_bytes_per_s, 208'000'000'000);
    EXPECT_NEAR(static_cast<double>(config->experts[0].budget_bytes()), 104.49 * (1 << 30), 2);
    EXPECT_EQ(config->placement.mode, ModeChoice::kSliced);
    EXPECT_EQ(config->placement.pack, PackChoice::kMxfp4);
    EXPECT_EQ(config->placement.batch_tokens, 8);
    EXPECT_EQ(config->placement.traces,
              (std::vector<std::filesystem::path>{"/etc/k3pod/a.json", "/b.json"}));
    const auto again = parse_pod_config(to_toml(*config), config->file);
    ASSERT_TRUE(again.is_ok()) << again.status().message() << to_toml(*config);
    EXPECT_EQ(*again, *config);
}

std::string tiers_with(std::string from, const std::string& to) {
    std::string text = kTiers;
    text.replace(text.find(from), from.size(), to);
    return refusal(text);
}

TEST(PodConfig, memories_that_make_no_sense_are_refused) {
    EXPECT_THAT(tiers_with("\"3 GiB\"", "\"300 GiB\""),
                HasSubstr("[station.hbm]: the reserve lines take 302 GiB, its memory is"));
    EXPECT_THAT(tiers_with("\"3 GiB\"", "3.5"), HasSubstr("hbm: reserve: workspace"));
    EXPECT_THAT(tiers_with("workspace =", "\"Work space\" ="), HasSubstr("lower-case letters"));
    EXPECT_THAT(tiers_with("memory = \"252", "memmory = \"252"),
                HasSubstr("unknown key 'memmory'; a tier has memory, reserve, bandwidth and"));
    EXPECT_THAT(tiers_with("7.1 TB/s", "7.1 TB"), HasSubstr("'7.1 TB' is not a bandwidth"));
    EXPECT_THAT(tiers_with("7.1 TB/s", "0 B/s"), HasSubstr("'0 B/s' is not a bandwidth"));
    EXPECT_THAT(tiers_with("expert_budget = \"1 GiB\"", "reserve = { os = \"1 GiB\" }"),
                HasSubstr("[station.host]: has reserve lines but no memory"));
    EXPECT_THAT(tiers_with("memory = \"119.7 GiB\"\nreserve = { os = \"15.21 GiB\" }",
                           "memory = \"10 GiB\"\nexpert_budget = \"11 GiB\""),
                HasSubstr("spark-1: expert_budget 11 GiB is over its memory 10 GiB"));
    EXPECT_THAT(tiers_with("[station.hbm]", "[station]\nexpert_budget = 1\n[station.hbm]"),
                HasSubstr("[station] expert_budget is for a station without tiers"));
    EXPECT_THAT(tiers_with("[\"a.json\", \"/b.json\"]", "\"a.json\""),
                HasSubstr("a.json is not a list of file names"));
    EXPECT_THAT(tiers_with("\"sliced\"", "\"diced\""),
                HasSubstr("\"diced\" is not one of \"auto\", \"whole\", \"sliced\""));
    EXPECT_THAT(tiers_with("\"spark-1\"", "\"station.hbm\""),
                HasSubstr("two nodes are named 'station.hbm'"));
}

TEST(PodConfig, names_and_addresses_must_be_unique) {
    const std::string second =
        "[[expert]]\nname='spark-1'\ncontrol='127.0.0.1:7002'\nexpert_budget=1\n";
    EXPECT_THAT(refusal(kMinimal + second), HasSubstr("two nodes are named 'spark-1'"));
    const std::string same =
        "[[expert]]\nname='spark-2'\ncontrol='127.0.0.1:7001'\nexpert_budget=1\n";
    EXPECT_THAT(refusal(kMinimal + same),
                HasSubstr("spark-2 uses the address 127.0.0.1:7001 a second time"));
    const std::string station =
        "[[expert]]\nname='station'\ncontrol='127.0.0.1:7003'\nexpert_budget=1\n";
    EXPECT_THAT(refusal(kMinimal + station), HasSubstr("two nodes are named 'station'"));
}

TEST(PodConfig, sizes_and_times_take_units) {
    const auto config = parse(
        "[pod]\nmodel='/m/'\n[station]\nexpert_budget='1.5 "
        "GiB'\n[exchange]\nframe_deadline='250ms'\n"
        "heartbeat_interval='20 "
        "ms'\nwait='spin'\nreply='f32'\ntransport='rc'\npayload_check='off'\n");
    ASSERT_TRUE(config.is_ok()) << config.status().message();
    EXPECT_EQ(config->station.expert_budget_bytes, 1610612736);
    EXPECT_EQ(config->exchange.frame_deadline, milliseconds(250));
    EXPECT_TRUE(config->exchange.spin);
    EXPECT_TRUE(config->exchange.reply_f32);
    EXPECT_EQ(config->exchange.transport, TransportName::kRc);
    EXPECT_EQ(config->exchange.payload_check, CheckMode::kOff);
    EXPECT_EQ(config->model, "/m");
}

TEST(PodConfig, unreadable_file_is_named_with_the_reason) {
    EXPECT_EQ(read_pod_config("/nowhere/pod.toml").status().message(),
              "cannot read the pod file /nowhere/pod.toml: No such file or directory; give it with "
              "--pod");
    EXPECT_THAT(read_pod_config("/").status().message(), HasSubstr("it is a folder"));
}

TEST(PodConfig, garbage_never_crashes) {
    for (const char* text : {"", "[", "\xff\xfe", "[pod]\nmodel = \"\n", "= 1",
                             "[[expert]]\n[[expert]]", "[pod.x]\n"}) {
        EXPECT_FALSE(parse(text).is_ok()) << text;
    }
}

TEST(Environment, variables_with_our_prefix_are_refused_by_name) {
    const char* clean[] = {"PATH=/bin", "HOME=/", nullptr};
    EXPECT_TRUE(check_environment(clean).is_ok());
    const char* dirty[] = {"PATH=/bin", "K3POD_TRANSPORT=shm", nullptr};
    EXPECT_THAT(check_environment(dirty).message(), HasSubstr("K3POD_TRANSPORT is set"));
}

}  // namespace
}  // namespace k3pod

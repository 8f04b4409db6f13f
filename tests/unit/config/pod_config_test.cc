#include "k3pod/config/pod_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/config/minimal_pod.h"

namespace k3pod {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

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
        {"max_num_seqs = '8'", "\"8\" is not a whole number"},
        {"max_num_seqs = 1.5", "a fraction is not a whole number"},
        {"max_num_seqs = 600", "max_batch_tokens 512 is below 616"},
        {"drain_timeout = '3 weeks'", "'3 weeks' is not a time"},
        {"drain_timeout = 3", "3 is not a time such as"},
        {"expert_budget = '4 gigs'", "'4 gigs' is not a size"},
        {"expert_budget = '-4'", "'-4' is not a size"},
        {"expert_budget = '2e30 GiB'", "is not a size"},
        {"expert_budget = '16777215 TiB'", "'16777215 TiB' is too large; the limit is 1048576 TiB"},
        {"expert_budget = 9223372036854775807", "'9223372036854775807' is too large"},
        {"drain_timeout = '2000 min'", "'2000 min' is too long; the limit is one day, 1440 min"},
        {"max_num_seqs = ''", "max_num_seqs: \"\" is not a whole number"},
        {"max_body = '10 B'", "max_body 10 B is below the least allowed, 1 KiB"},
        {"backend = 'rocm'", "\"rocm\" is not one of \"cpu\", \"cuda\""},
        {"backend = true", "backend: true is not one of"},
        {"listen = '127.0.0.1'", "'127.0.0.1' is not an address: it has no port"},
        {"listen = ':80'", "it has no host"},
        {"listen = '127.0.0.1:99999'", "the port '99999' is not a number from 0 to 65535"},
        {"listen = '127.0.0.1:'", "the port '' is not a number"},
        {"listen = 'a b:1'", "'a b' is no host"},
        {"listen = '::1:80'", "'::1' is no host; an IPv6 address stands in brackets"},
        {"served_model_name = ''", "must not be empty; leave the key out instead"},
        {"max_model_len = 1", "max_model_len: 1 is outside 2 to 2147483647 (0 is allowed, too)"},
        {"kv_tokens = 1", "kv_tokens: 1 is outside 64 to 68719476736 (0 is allowed, too)"},
        {"sse_keepalive = '1 ns'",
         "sse_keepalive: \"1 ns\" is below the least allowed, 50 ms (\"0 s\" is allowed, too)"},
        {"drain_timeout = '99 ms'", "drain_timeout: \"99 ms\" is below the least allowed, 100 ms"},
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
                HasSubstr("[station.hbm]: the reserve lines take 302.00 GiB (324270030848 B), its "
                          "memory is 234.69 GiB (252000000000 B); lower the lines"));
    EXPECT_THAT(tiers_with("\"3 GiB\"", "3.5"), HasSubstr("hbm: reserve: workspace"));
    EXPECT_THAT(tiers_with("workspace =", "\"Work space\" ="),
                HasSubstr("'Work space' is not the name of a line; write lower-case"));
    EXPECT_THAT(tiers_with("memory = \"252", "memmory = \"252"),
                HasSubstr("unknown key 'memmory'; a tier has memory, reserve, bandwidth and"));
    EXPECT_THAT(tiers_with("7.1 TB/s", "7.1 TB"), HasSubstr("'7.1 TB' is not a bandwidth"));
    EXPECT_THAT(tiers_with("7.1 TB/s", "0 B/s"), HasSubstr("'0 B/s' is not a bandwidth"));
    EXPECT_THAT(tiers_with("expert_budget = \"1 GiB\"", "reserve = { os = \"1 GiB\" }"),
                HasSubstr("[station.host]: has reserve lines but no memory"));
    EXPECT_THAT(
        tiers_with("memory = \"119.7 GiB\"\nreserve = { os = \"15.21 GiB\" }",
                   "memory = \"10 GiB\"\nexpert_budget = \"11 GiB\""),
        HasSubstr("spark-1: expert_budget 11.00 GiB (11811160064 B) is over its memory 10.00 GiB"));
    EXPECT_THAT(tiers_with("[station.hbm]", "[station]\nexpert_budget = 1\n[station.hbm]"),
                HasSubstr("[station] expert_budget is for a station without tiers"));
    EXPECT_THAT(tiers_with("[\"a.json\", \"/b.json\"]", "\"a.json\""),
                HasSubstr("\"a.json\" is not a list of file names"));
    EXPECT_THAT(tiers_with("\"sliced\"", "\"diced\""),
                HasSubstr("\"diced\" is not one of \"auto\", \"whole\", \"sliced\""));
    EXPECT_THAT(tiers_with("\"spark-1\"", "\"station.hbm\""),
                HasSubstr("[[expert]] name 'station.hbm' means the station or a memory of it"));
    EXPECT_THAT(tiers_with("7.1 TB/s", "16777215 TiB/s"), HasSubstr("is too large; the limit is"));
}

TEST(PodConfig, times_of_the_exchange_have_a_least_value_and_no_zero) {
    for (const char* key : {"frame_deadline", "heartbeat_interval"}) {
        for (const char* value : {"0 s", "1 ns", "9 ms"}) {
            const std::string line = std::string(key) + " = '" + value + "'\n";
            EXPECT_THAT(refusal("[exchange]\n" + line + kMinimal),
                        HasSubstr(std::string("[exchange] ") + key + ": \"" + value +
                                  "\" is below the least allowed, 10 ms"));
        }
    }
}

TEST(PodConfig, a_hold_ends_before_a_gpu_takes_the_station_for_dead) {
    EXPECT_THAT(refusal("[exchange]\nhold_timeout = '21 min'\n" + std::string(kMinimal)),
                HasSubstr("[exchange] hold_timeout: \"21 min\" is above the most allowed, 20 min"));
    EXPECT_THAT(refusal("[exchange]\nhold_timeout = '9 ms'\n" + std::string(kMinimal)),
                HasSubstr("is below the least allowed, 10 ms (\"0 s\" is allowed, too)"));
    const auto never = parse("[exchange]\nhold_timeout = '0 s'\n" + std::string(kMinimal));
    ASSERT_TRUE(never.is_ok()) << never.status().message();
    EXPECT_EQ(never->exchange.hold_timeout.count(), 0);
    const auto usual = parse(kMinimal);
    ASSERT_TRUE(usual.is_ok()) << usual.status().message();
    EXPECT_EQ(usual->exchange.hold_timeout, std::chrono::minutes(2));
}

TEST(PodConfig, zero_means_never_or_the_models_own_where_that_has_a_meaning) {
    const auto config = parse(
        "[station]\nmax_model_len = 0\nkv_tokens = 0\nsse_keepalive = '0 s'\ndrain_timeout = '0 "
        "s'\n" +
        std::string(kMinimal));
    ASSERT_TRUE(config.is_ok()) << config.status().message();
    EXPECT_EQ(config->station.sse_keepalive.count(), 0);
    EXPECT_EQ(config->station.drain_timeout.count(), 0);
}

TEST(PodConfig, an_empty_model_is_refused_with_file_line_and_key) {
    EXPECT_EQ(refusal("[pod]\nmodel = \"\"\n"),
              "/etc/k3pod/pod.toml:2: [pod] model: must not be empty");
}

TEST(PodConfig, control_characters_are_refused_wherever_a_text_is_read) {
    for (const char* line :
         {"[pod]\nname = \"a\\nb\"", "[pod]\nmodel = \"a\\u0000b\"",
          "[station]\nserved_model_name = \"\\u001b[2J\"", "[station]\ndevice = \"\\u009b\"",
          "[station]\nlisten = \"a\\tb:1\"", "[[expert]]\nname = \"a\\u007f\""}) {
        EXPECT_THAT(refusal(line), HasSubstr("has control characters or is not UTF-8")) << line;
    }
    EXPECT_THAT(refusal("[station]\nserved_model_name = \"\\u001b[2J\""), HasSubstr("'\\x1b[2J'"));
}

TEST(PodConfig, a_node_name_is_an_argument_a_label_and_json) {
    const std::string legal = "Spark-1.rack_2";
    EXPECT_TRUE(parse("[pod]\nmodel='m'\n[[expert]]\nname='" + legal +
                      "'\ncontrol='h:1'\nexpert_budget=1\n")
                    .is_ok());
    for (const std::string& name :
         std::vector<std::string>{"a b", "a\"b", "a%b", "a/b", "ä", std::string(65, 'a')}) {
        EXPECT_THAT(refusal("[[expert]]\nname = '" + name + "'\n"),
                    HasSubstr("[[expert]] name: '" + name.substr(0, 64) +
                              (name.size() > 64 ? "..." : "") + "' is not a node's name"));
    }
}

TEST(PodConfig, a_name_that_a_path_cannot_give_has_to_be_set) {
    EXPECT_THAT(
        refusal("[pod]\nmodel='/'\n[station]\nexpert_budget='1 MiB'\n"),
        HasSubstr("[station] served_model_name is not set, and the name that the path gives "
                  "is empty; set it"));
    const auto config = parse_pod_config(kMinimal, "/etc/k3pod/p\nd.toml");
    EXPECT_THAT(config.status().message(), HasSubstr("[pod] name is not set"));
}

TEST(PodConfig, names_and_addresses_must_be_unique) {
    const std::string second =
        "[[expert]]\nname='spark-1'\ncontrol='127.0.0.1:7002'\nexpert_budget=1\n";
    EXPECT_THAT(refusal(kMinimal + second),
                HasSubstr("two [[expert]] servers are named 'spark-1'"));
    const std::string same =
        "[[expert]]\nname='spark-2'\ncontrol='127.0.0.1:7001'\nexpert_budget=1\n";
    EXPECT_THAT(refusal(kMinimal + same),
                HasSubstr("spark-2 uses the address 127.0.0.1:7001 a second time"));
    const std::string station =
        "[[expert]]\nname='station'\ncontrol='127.0.0.1:7003'\nexpert_budget=1\n";
    EXPECT_THAT(refusal(kMinimal + station), HasSubstr("name 'station' means the station"));
}

TEST(PodConfig, a_value_of_any_length_is_shown_in_a_readable_sentence) {
    const std::string digits(400, '9'), letters(5000, 'x');
    for (const std::string& value : {digits, letters, digits + " GiB"}) {
        for (const char* key : {"expert_budget", "drain_timeout", "max_num_seqs", "backend",
                                "listen", "served_model_name", "hbm"}) {
            if (value.size() < 4096 && std::string(key) == "served_model_name") continue;  // legal
            const std::string line = std::string(key) + " = '" + value + "'\n";
            const std::string message = refusal("[station]\n" + line + kMinimal);
            EXPECT_THAT(message, HasSubstr(std::string("[station] ") + key)) << value;
            EXPECT_LT(message.size(), 300) << message;
        }
    }
    EXPECT_LT(refusal("[station]\n" + letters + " = 1\n" + kMinimal).size(), 300);
    EXPECT_THAT(refusal("[station]\nexpert_budget = '" + digits + "'\n" + kMinimal),
                HasSubstr("is too large"));
}

TEST(PodConfig, a_name_that_is_no_expert_server_gets_the_nearest_or_a_few) {
    std::string text = "[pod]\nmodel='m'\n";
    for (int i = 1; i <= 300; ++i) {
        const std::string n = std::to_string(i);
        text += "[[expert]]\nname='s" + n + "'\ncontrol='h:" + n + "'\nexpert_budget=1\n";
    }
    const auto config = parse(text);
    ASSERT_TRUE(config.is_ok()) << config.status().message();
    EXPECT_THAT(config->no_such_expert("server-of-another-pod").message(),
                HasSubstr("is named 'server-of-another-pod'; it has s1, s2, s3, s4, s5, s6, s7, s8 "
                          "and 292 more"));
    EXPECT_THAT(config->no_such_expert("s-17").message(), HasSubstr("did you mean 's17'?"));
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
              "cannot read /nowhere/pod.toml: No such file or directory; give the pod file with "
              "--pod");
    EXPECT_EQ(read_pod_config("/").status().message(),
              "/ is a folder, expected a regular file; give the pod file with --pod");
    EXPECT_EQ(read_pod_config("/dev/zero").status().message(),
              "/dev/zero is a device, expected a regular file; give the pod file with --pod");
}

TEST(PodConfig, file_may_begin_with_a_byte_order_mark) {
    const std::string path = testing::TempDir() + "/marked_pod.toml";
    std::ofstream(path) << "\xef\xbb\xbf" << kMinimal;
    EXPECT_TRUE(read_pod_config(path).is_ok());
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

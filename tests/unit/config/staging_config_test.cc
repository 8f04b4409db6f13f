#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "k3pod/config/pod_config.h"

namespace k3pod {
namespace {

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

TEST(StagingConfig, is_local_unless_the_pod_file_says_otherwise) {
    const auto config = parse(kMinimal);
    ASSERT_TRUE(config.is_ok()) << config.status().message();
    EXPECT_EQ(config->staging.source, ShardOrigin::kLocal);
    EXPECT_EQ(config->staging.buffer_bytes, 536870912);
    EXPECT_EQ(config->staging.readers, 2);
    EXPECT_TRUE(config->experts[0].shard_cache.empty());
}

TEST(StagingConfig, is_read_and_printed) {
    const auto config = parse(std::string(kMinimal) +
                              "shard_cache = 'cache/spark-1'\n"
                              "[staging]\nsource = 'station'\nbuffer = '2 GiB'\nreaders = 8\n");
    ASSERT_TRUE(config.is_ok()) << config.status().message();
    EXPECT_EQ(config->staging.source, ShardOrigin::kStation);
    EXPECT_EQ(config->staging.buffer_bytes, int64_t{2} << 30);
    EXPECT_EQ(config->staging.readers, 8);
    EXPECT_EQ(config->experts[0].shard_cache, "/etc/k3pod/cache/spark-1");
    const auto again = parse(to_toml(*config));
    ASSERT_TRUE(again.is_ok()) << again.status().message();
    EXPECT_EQ(*again, *config);
}

TEST(StagingConfig, refuses_unknown_sources_and_a_cache_that_nothing_would_fill) {
    EXPECT_THAT(parse(std::string(kMinimal) + "[staging]\nsource = 'disk'\n").status().message(),
                HasSubstr("[staging] source: \"disk\" is not one of \"local\", \"station\""));
    EXPECT_THAT(parse(std::string(kMinimal) + "[staging]\nreaders = 0\n").status().message(),
                HasSubstr("[staging] readers: 0 is outside 1 to 64"));
    EXPECT_THAT(parse(std::string(kMinimal) + "shard_cache = '/c'\n").status().message(),
                HasSubstr("spark-1: shard_cache keeps what the station sends"));
}

}  // namespace
}  // namespace k3pod

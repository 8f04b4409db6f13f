#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "k3pod/config/pod_config.h"
#include "tests/unit/config/minimal_pod.h"

namespace k3pod {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& added) {
    std::string text(kMinimal);
    text += added;
    const auto config = parse(text);
    EXPECT_FALSE(config.is_ok()) << added;
    return config.status().message();
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
    std::string text(kMinimal);
    text +=
        "shard_cache = 'cache/spark-1'\n"
        "[staging]\nsource = 'station'\nbuffer = '2 GiB'\nreaders = 8\n";
    const auto config = parse(text);
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
    EXPECT_THAT(refusal("[staging]\nsource = 'disk'\n"),
                HasSubstr("[staging] source: \"disk\" is not one of \"local\", \"station\""));
    EXPECT_THAT(refusal("[staging]\nreaders = 0\n"),
                HasSubstr("[staging] readers: 0 is outside 1 to 64"));
    EXPECT_THAT(refusal("shard_cache = '/c'\n"),
                HasSubstr("spark-1: shard_cache keeps what the station sends"));
}

}  // namespace
}  // namespace k3pod

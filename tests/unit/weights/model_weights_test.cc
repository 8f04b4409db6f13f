#include "k3pod/weights/model_weights.h"

#include <gtest/gtest.h>

namespace k3pod {
namespace {

struct Tiny {
    ModelConfig config;
    Checkpoint checkpoint;
};

Tiny open_tiny() {
    const std::filesystem::path dir = K3POD_SOURCE_DIR "/models/k3-tiny";
    return {read_model_config(dir).value(), Checkpoint::open(dir).value()};
}

TEST(ModelWeights, opens_k3_tiny_as_the_nvfp4_release) {
    const Tiny tiny = open_tiny();
    EXPECT_EQ(tiny.checkpoint.num_tensors(), 3372);
    const auto release = check_model(tiny.checkpoint, tiny.config);
    ASSERT_TRUE(release) << release.status().to_string();
    EXPECT_EQ(*release, Release::kNvfp4);
    const auto weights = load_station_weights(tiny.checkpoint, tiny.config, nullptr);
    ASSERT_TRUE(weights) << weights.status().to_string();
    const auto shard = load_expert_shard(tiny.checkpoint, tiny.config, *release, 3, 17, 32, 96);
    ASSERT_TRUE(shard) << shard.status().to_string();
    EXPECT_EQ(shard->w1.view().format, WeightFormat::kMxfp4);
    int64_t repacked = 0;
    for (int layer = 1; layer < 9; ++layer)
        for (int e = 0; e < 32; ++e)
            repacked += load_expert_shard(tiny.checkpoint, tiny.config, *release, layer, e, 0, 128)
                            ->w1.view()
                            .format == WeightFormat::kMxfp4;
    EXPECT_EQ(repacked, 256);
}

}  // namespace
}  // namespace k3pod

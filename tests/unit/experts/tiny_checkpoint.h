#pragma once
// The experts of models/k3-tiny: 32 of width 128 in each of the layers 1 to 8.

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "k3pod/experts/expert_store.h"

namespace k3pod {

inline constexpr int32_t kTinyWidth = 128;
inline constexpr int32_t kTinyExperts = 32;
inline constexpr int32_t kTinyLatent = 128;

struct TinyCheckpoint {
    Checkpoint checkpoint;
    ModelConfig config;
    Release release;

    static TinyCheckpoint open() {
        const std::filesystem::path dir =
            std::filesystem::path(K3POD_SOURCE_DIR) / "models/k3-tiny";
        auto checkpoint = Checkpoint::open(dir).value();
        auto config = read_model_config(dir).value();
        auto release = check_model(checkpoint, config).value();
        return {std::move(checkpoint), std::move(config), release};
    }

    Result<std::unique_ptr<ExpertStore>> load(std::span<const Shard> shards,
                                              const LoadProgress& progress = nullptr) const {
        return ExpertStore::load(checkpoint, config, release, shards, progress);
    }
};

// Columns [begin, end) of every expert of one layer.
inline std::vector<Shard> layer_shards(int32_t layer, int32_t begin, int32_t end) {
    std::vector<Shard> shards;
    for (int32_t e = 0; e < kTinyExperts; ++e) shards.push_back({layer, e, begin, end});
    return shards;
}

}  // namespace k3pod

#include "k3pod/weights/packed_shard.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <vector>

namespace k3pod {
namespace {

using ::testing::HasSubstr;

struct Tiny {
    Checkpoint checkpoint;
    ModelConfig config;
    Release release;
};

Tiny open_tiny() {
    const std::filesystem::path dir = std::filesystem::path(K3POD_SOURCE_DIR) / "models/k3-tiny";
    Checkpoint checkpoint = Checkpoint::open(dir).value();
    ModelConfig config = read_model_config(dir).value();
    const Release release = check_model(checkpoint, config).value();
    return {std::move(checkpoint), config, release};
}

HostBuffer packed(const HeldShard& shard) {
    HostBuffer bytes(packed_shard_bytes(shard.format(), shard.w1.cols, shard.w1.rows));
    pack_shard(shard, {bytes.data(), static_cast<size_t>(bytes.size_bytes())});
    return bytes;
}

std::span<std::byte> view(HostBuffer& bytes) {
    return {bytes.data(), static_cast<size_t>(bytes.size_bytes())};
}

void expect_same(const MatrixView& a, const MatrixView& b) {
    ASSERT_EQ(a.format, b.format);
    ASSERT_EQ(a.rows, b.rows);
    ASSERT_EQ(a.cols, b.cols);
    EXPECT_EQ(a.global_scale, b.global_scale);
    const auto data = static_cast<size_t>(matrix_data_bytes(a.format, a.rows, a.cols));
    const auto scales = static_cast<size_t>(matrix_scale_bytes(a.format, a.rows, a.cols));
    EXPECT_EQ(std::memcmp(a.data, b.data, data), 0);
    EXPECT_EQ(std::memcmp(a.scales, b.scales, scales), 0);
}

TEST(PackedShard, gives_back_what_was_packed) {
    const Tiny tiny = open_tiny();
    const auto weights =
        load_expert_shard(tiny.checkpoint, tiny.config, tiny.release, 3, 5, 32, 96).value();
    HostBuffer bytes = packed(held_shard(weights));
    // 64 of head, 2 x (64 x 128) and (128 x 64) nibbles, and a scale for each 32 of them.
    EXPECT_EQ(bytes.size_bytes(), 64 + 3 * (4096 + 256));
    const auto opened = open_packed_shard(view(bytes), 128, 64);
    ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
    expect_same(opened->w1, weights.w1.view());
    expect_same(opened->w3, weights.w3.view());
    expect_same(opened->w2, weights.w2.view());
    EXPECT_EQ(opened->size_bytes(), 3 * (4096 + 256));
}

TEST(PackedShard, of_several_slices_read_together_has_the_bits_of_each_read_alone) {
    const Tiny tiny = open_tiny();
    const std::vector<ColumnRange> slices{{0, 32}, {32, 96}, {96, 128}};
    const auto together =
        load_expert_slices(tiny.checkpoint, tiny.config, tiny.release, 3, 5, slices).value();
    ASSERT_EQ(together.size(), 3u);
    for (size_t i = 0; i < slices.size(); ++i) {
        const auto alone = load_expert_shard(tiny.checkpoint, tiny.config, tiny.release, 3, 5,
                                             slices[i].begin, slices[i].end)
                               .value();
        expect_same(together[i].w1.view(), alone.w1.view());
        expect_same(together[i].w3.view(), alone.w3.view());
        expect_same(together[i].w2.view(), alone.w2.view());
    }
}

TEST(PackedShard, of_another_shape_or_a_damaged_head_is_refused) {
    const Tiny tiny = open_tiny();
    const auto weights =
        load_expert_shard(tiny.checkpoint, tiny.config, tiny.release, 3, 5, 0, 64).value();
    HostBuffer bytes = packed(held_shard(weights));
    EXPECT_THAT(open_packed_shard(view(bytes), 128, 96).status().message(),
                HasSubstr("is 64 x 128, expected 96 x 128"));
    EXPECT_THAT(
        open_packed_shard(view(bytes).first(bytes.size_bytes() - 1), 128, 64).status().message(),
        HasSubstr("expected 13120"));
    EXPECT_EQ(open_packed_shard(view(bytes).first(10), 128, 64).status().code(), Code::kDataLoss);
    bytes.data()[0] ^= std::byte{1};
    EXPECT_EQ(open_packed_shard(view(bytes), 128, 64).status().code(), Code::kDataLoss);
}

TEST(PackedShard, has_a_hash_that_every_byte_changes) {
    const Tiny tiny = open_tiny();
    const auto weights =
        load_expert_shard(tiny.checkpoint, tiny.config, tiny.release, 3, 5, 0, 128).value();
    HostBuffer bytes = packed(held_shard(weights));
    const uint64_t hash = shard_hash(view(bytes));
    for (int64_t at = 0; at < bytes.size_bytes(); at += 997) {
        bytes.data()[at] ^= std::byte{0x10};
        EXPECT_NE(shard_hash(view(bytes)), hash) << at;
        bytes.data()[at] ^= std::byte{0x10};
    }
    EXPECT_EQ(shard_hash(view(bytes)), hash);
}

TEST(PackedShard, counts_in_64_bits) {
    EXPECT_EQ(packed_shard_bytes(WeightFormat::kMxfp4, 1 << 16, 1 << 17),
              64 + 3 * 17 * (int64_t{1} << 28));
}

}  // namespace
}  // namespace k3pod

#include "k3pod/experts/expert_store.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "tests/support/checkpoint_fixture.h"
#include "tests/unit/experts/tiny_checkpoint.h"

namespace k3pod {
namespace {

using ::testing::HasSubstr;

class ExpertStoreTest : public ::testing::Test {
  protected:
    std::string refusal(const std::vector<Shard>& shards) {
        const auto store = tiny.load(shards);
        EXPECT_FALSE(store.is_ok());
        EXPECT_EQ(store.status().code(), Code::kInvalidArgument);
        return store.status().message();
    }

    TinyCheckpoint tiny = TinyCheckpoint::open();
};

TEST_F(ExpertStoreTest, finds_what_it_holds_and_nothing_else) {
    const std::vector<Shard> shards{{1, 9, 0, 128}, {4, 31, 32, 96}};
    const auto store = tiny.load(shards).value();
    EXPECT_EQ(store->num_shards(), 2);
    ASSERT_EQ(store->find(1, 9).size(), 1u);
    EXPECT_EQ(store->find(1, 9)[0].w1.rows, 128);
    ASSERT_EQ(store->find(4, 31).size(), 1u);
    EXPECT_EQ(store->find(4, 31)[0].w1.rows, 64);
    EXPECT_EQ(store->find(4, 31)[0].w2.cols, 64);
    EXPECT_TRUE(store->find(1, 8).empty());
    EXPECT_TRUE(store->find(2, 9).empty());
}

TEST_F(ExpertStoreTest, counts_shards_that_keep_nvfp4_by_their_own_blocks) {
    testing::EditableCheckpoint edited(K3POD_SOURCE_DIR "/models/k3-tiny");
    // 1.125 in the first row of w1: only shards with column 0 of the width hold the block.
    edited.tensor("language_model.model.layers.2.block_sparse_moe.experts.5.w1.weight_scale")
        .bytes[0] = 0x39;
    const testing::TempFolder folder;
    edited.save(folder.path());
    tiny.checkpoint = Checkpoint::open(folder.path()).value();
    const std::vector<Shard> shards{{2, 5, 0, 32}, {2, 5, 32, 128}, {2, 6, 0, 128}};
    const auto store = tiny.load(shards).value();
    EXPECT_EQ(store->num_shards(), 3);
    EXPECT_EQ(store->num_nvfp4_shards(), 1);
    EXPECT_EQ(store->size_bytes(), 32 * 3 * (64 + 8) + (96 + 128) * 3 * (64 + 4));
}

TEST_F(ExpertStoreTest, finds_nothing_outside_the_model) {
    const auto store = tiny.load(layer_shards(1, 0, 128)).value();
    EXPECT_TRUE(store->find(0, 0).empty());  // dense layer
    EXPECT_TRUE(store->find(-1, 0).empty());
    EXPECT_TRUE(store->find(9, 0).empty());
    EXPECT_TRUE(store->find(1, -1).empty());
    EXPECT_TRUE(store->find(1, 32).empty());
}

TEST_F(ExpertStoreTest, keeps_slices_of_one_expert_in_order) {
    const std::vector<Shard> shards{{2, 5, 96, 128}, {2, 5, 0, 32}, {2, 5, 32, 96}};
    const auto store = tiny.load(shards).value();
    const auto found = store->find(2, 5);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[0].w1.rows, 32);
    EXPECT_EQ(found[1].w1.rows, 64);
    EXPECT_EQ(found[2].w1.rows, 32);
    const auto whole = tiny.load(std::vector<Shard>{{2, 5, 0, 128}}).value();
    const MatrixView last = found[2].w1;
    const auto row_bytes = static_cast<size_t>(matrix_data_bytes(last.format, 1, last.cols));
    EXPECT_EQ(std::memcmp(last.data, whole->find(2, 5)[0].w1.data + 96 * row_bytes, 32 * row_bytes),
              0);
}

TEST_F(ExpertStoreTest, reports_progress_up_to_the_last_byte) {
    std::vector<std::pair<int64_t, int64_t>> reports;
    const auto store =
        tiny.load(layer_shards(3, 0, 128),
                  [&](int64_t done, int64_t total) { reports.emplace_back(done, total); })
            .value();
    ASSERT_FALSE(reports.empty());
    EXPECT_TRUE(std::is_sorted(reports.begin(), reports.end()));
    EXPECT_EQ(reports.back().first, reports.back().second);
    EXPECT_GT(store->size_bytes(), 0);
}

TEST_F(ExpertStoreTest, holds_nothing_when_given_nothing) {
    const auto store = tiny.load({}).value();
    EXPECT_EQ(store->num_shards(), 0);
    EXPECT_EQ(store->size_bytes(), 0);
}

TEST_F(ExpertStoreTest, refuses_shards_outside_the_model) {
    EXPECT_THAT(refusal({{0, 0, 0, 128}}), HasSubstr("layer 0 expert 0 columns [0, 128)"));
    EXPECT_THAT(refusal({{9, 0, 0, 128}}), HasSubstr("MoE layers are [1, 9)"));
    EXPECT_THAT(refusal({{1, 32, 0, 128}}), HasSubstr("32 experts"));
    EXPECT_THAT(refusal({{1, -1, 0, 128}}), HasSubstr("expert -1"));
}

TEST_F(ExpertStoreTest, refuses_columns_that_cut_a_scale_block_or_leave_the_width) {
    EXPECT_THAT(refusal({{1, 0, 0, 48}}), HasSubstr("multiples of 32"));
    EXPECT_THAT(refusal({{1, 0, 96, 160}}), HasSubstr("[0, 128]"));
    EXPECT_THAT(refusal({{1, 0, 64, 64}}), HasSubstr("columns [64, 64)"));
    EXPECT_THAT(refusal({{1, 0, -32, 32}}), HasSubstr("columns [-32, 32)"));
}

TEST_F(ExpertStoreTest, refuses_columns_held_twice) {
    EXPECT_THAT(refusal({{1, 3, 64, 128}, {1, 3, 0, 96}}), HasSubstr("overlaps columns [0, 96)"));
}

// Heads alone are written, so that most of the store is never touched.
TEST(ExpertStoreBuilderTest, places_shards_beyond_four_gibibytes) {
    ModelConfig config;
    config.num_layers = 1;
    config.num_experts = 40;
    config.moe_intermediate = 8 * 3072;
    config.latent = 3584;
    std::vector<Shard> shards;
    for (int32_t expert = 0; expert < config.num_experts; ++expert) {
        shards.push_back({0, expert, 0, config.moe_intermediate});
    }
    const auto builder = ExpertStoreBuilder::create(config, Release::kMxfp4, shards).value();
    constexpr int64_t kShardBytes = 140378176;  // 64 + 3 x 24576 x 3584 x 17 / 32
    const std::byte* first = nullptr;
    for (size_t shard = 0; shard < shards.size(); ++shard) {
        const auto room = builder->room(shard, kShardBytes).value();
        if (shard == 0) first = room.data();
        const PackedHead head{
            .width = config.moe_intermediate, .latent = config.latent, .size_bytes = kShardBytes};
        std::memcpy(room.data(), &head, sizeof(head));
        ASSERT_TRUE(builder->finish(shard).is_ok());
    }
    const auto store = builder->build().value();
    EXPECT_EQ(store->size_bytes(), 40 * (kShardBytes - 64));
    EXPECT_EQ(store->find(0, 39)[0].w1.data - first, 39 * kShardBytes + 64);
}

TEST(ExpertStoreBuilderTest, refuses_a_shard_that_its_release_has_no_room_for) {
    ModelConfig config;
    config.num_layers = config.num_experts = 1;
    config.moe_intermediate = config.latent = 128;
    const std::vector<Shard> shards{{0, 0, 0, 128}};
    const auto builder = ExpertStoreBuilder::create(config, Release::kMxfp4, shards).value();
    const int64_t most = packed_shard_bytes(WeightFormat::kNvfp4, 128, 128);
    const auto room = builder->room(0, most);
    ASSERT_FALSE(room.is_ok());
    EXPECT_THAT(room.status().message(), HasSubstr("not of the release"));
}

}  // namespace
}  // namespace k3pod

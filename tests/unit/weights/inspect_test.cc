#include "k3pod/weights/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/support/checkpoint_fixture.h"

namespace k3pod {
namespace {

using k3pod::testing::convert_to_mxfp4;
using k3pod::testing::EditableCheckpoint;
using k3pod::testing::set_nan;
using k3pod::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kTiny = K3POD_SOURCE_DIR "/models/k3-tiny";
constexpr char kMoe[] = "language_model.model.layers.";

std::string expert_tensor(int layer, int expert, const std::string& rest) {
    return kMoe + std::to_string(layer) + ".block_sparse_moe.experts." + std::to_string(expert) +
           "." + rest;
}

Result<ExpertFormats> inspect_folder(const std::filesystem::path& dir,
                                     const LoadProgress& progress = nullptr) {
    K3POD_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(dir));
    K3POD_ASSIGN(const ModelConfig config, read_model_config(dir));
    K3POD_ASSIGN(const Release release, check_model(checkpoint, config));
    return inspect_experts(checkpoint, config, release, progress);
}

TEST(Inspect, tensors_of_one_kind_are_counted_together) {
    const Checkpoint checkpoint = Checkpoint::open(kTiny).value();
    const auto kinds = tensor_kinds(checkpoint);
    const auto of = [&](const std::string& name) {
        return *std::find_if(kinds.begin(), kinds.end(),
                             [&](const TensorKind& kind) { return kind.name == name; });
    };
    const TensorKind w1 = of("language_model.model.layers.*.block_sparse_moe.experts.*.w1.weight");
    EXPECT_EQ(w1.num_tensors, 8 * 32);
    EXPECT_EQ(w1.size_bytes, 8 * 32 * 128 * 64);
    EXPECT_THAT(w1.shape, ElementsAre(128, 64));
    EXPECT_EQ(w1.dtype, DType::kU8);
    // Digits inside a word are part of the name.
    EXPECT_EQ(of("language_model.model.layers.*.block_sparse_moe.experts.*.w1.weight_scale_2")
                  .num_tensors,
              8 * 32);
    int64_t tensors = 0, bytes = 0;
    for (const TensorKind& kind : kinds) {
        tensors += kind.num_tensors;
        bytes += kind.size_bytes;
    }
    EXPECT_EQ(tensors, checkpoint.num_tensors());
    EXPECT_EQ(bytes, checkpoint.total_bytes());
}

TEST(Inspect, every_expert_of_the_demo_model_is_held_as_mxfp4) {
    const auto formats = inspect_folder(kTiny);
    ASSERT_TRUE(formats) << formats.status().to_string();
    EXPECT_EQ(formats->num_mxfp4, 8 * 32);
    EXPECT_THAT(formats->kept_nvfp4, IsEmpty());
    EXPECT_EQ(formats->memory_bytes, 8 * 32 * 3 * 128 * (64 + 4));
}

TEST(Inspect, experts_without_an_exact_form_are_named_in_order) {
    EditableCheckpoint edited(kTiny);
    edited.tensor(expert_tensor(7, 2, "w2.weight_scale")).bytes[9] = 0x39;  // 1.125
    edited.tensor(expert_tensor(3, 17, "w3.weight_scale")).bytes[5] = 0x39;
    const TempFolder folder;
    edited.save(folder.path());
    const auto formats = inspect_folder(folder.path());
    ASSERT_TRUE(formats) << formats.status().to_string();
    EXPECT_EQ(formats->num_mxfp4, 8 * 32 - 2);
    EXPECT_THAT(formats->kept_nvfp4, ElementsAre(ExpertId{3, 17}, ExpertId{7, 2}));
    EXPECT_EQ(formats->memory_bytes, (8 * 32 - 2) * 3 * 128 * (64 + 4) + 2 * 3 * 128 * (64 + 8));
}

TEST(Inspect, experts_of_the_mxfp4_release_stay_as_they_are) {
    EditableCheckpoint edited(kTiny);
    convert_to_mxfp4(edited);
    const TempFolder folder;
    edited.save(folder.path());
    const auto formats = inspect_folder(folder.path());
    ASSERT_TRUE(formats) << formats.status().to_string();
    EXPECT_EQ(formats->num_mxfp4, 8 * 32);
    EXPECT_EQ(formats->memory_bytes, 8 * 32 * 3 * 128 * (64 + 4));
}

TEST(Inspect, a_nan_scale_is_refused_with_its_tensor) {
    EditableCheckpoint edited(kTiny);
    const std::string tensor = expert_tensor(5, 0, "w1.weight_scale");
    set_nan(edited.tensor(tensor), 3);
    const TempFolder folder;
    edited.save(folder.path());
    const auto formats = inspect_folder(folder.path());
    ASSERT_FALSE(formats);
    EXPECT_THAT(formats.status().message(), HasSubstr(tensor));
}

TEST(Inspect, progress_ends_with_all_bytes) {
    int64_t done = 0, total = 0;
    const auto formats = inspect_folder(kTiny, [&](int64_t d, int64_t t) {
        done = d;
        total = t;
    });
    ASSERT_TRUE(formats);
    EXPECT_EQ(done, 8 * 32 * 3 * 128 * (64 + 8));
    EXPECT_EQ(total, done);
}

}  // namespace
}  // namespace k3pod

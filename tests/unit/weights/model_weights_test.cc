#include "k3pod/weights/model_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "tests/support/checkpoint_fixture.h"

namespace k3pod {
namespace {

using k3pod::testing::convert_to_mxfp4;
using k3pod::testing::EditableCheckpoint;
using k3pod::testing::set_nan;
using k3pod::testing::TempFolder;
using ::testing::HasSubstr;

constexpr char kModel[] = "language_model.model.";
constexpr char kExpert[] = "language_model.model.layers.3.block_sparse_moe.experts.17.";

EditableCheckpoint& tiny_tensors() {
    static EditableCheckpoint tiny(K3POD_SOURCE_DIR "/models/k3-tiny");
    return tiny;
}

const std::string& raw(const std::string& name) {
    return tiny_tensors().tensor(name).bytes;
}

template <class T>
T raw_value(const std::string& name, size_t i) {
    T value;
    std::memcpy(&value, raw(name).data() + i * sizeof(T), sizeof(T));
    return value;
}

std::string bytes_of(const std::byte* data, int64_t size) {
    return {reinterpret_cast<const char*>(data), static_cast<size_t>(size)};
}

std::string data_of(const MatrixView& m) {
    return bytes_of(m.data, matrix_data_bytes(m.format, m.rows, m.cols));
}

std::string scales_of(const MatrixView& m) {
    return bytes_of(m.scales, matrix_scale_bytes(m.format, m.rows, m.cols));
}

// A model on disk, opened.
struct OpenModel {
    TempFolder folder;
    ModelConfig config;
    std::unique_ptr<Checkpoint> checkpoint;
    Release release = Release::kNvfp4;
};

// A copy of k3-tiny that `edit` has changed.
std::unique_ptr<OpenModel> open_edited(const std::function<void(EditableCheckpoint&)>& edit) {
    EditableCheckpoint edited = tiny_tensors();
    edit(edited);
    auto model = std::make_unique<OpenModel>();
    edited.save(model->folder.path());
    model->config = read_model_config(model->folder.path()).value();
    model->checkpoint =
        std::make_unique<Checkpoint>(Checkpoint::open(model->folder.path()).value());
    model->release = check_model(*model->checkpoint, model->config).value();
    return model;
}

class TinyModel : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        model_ = open_edited([](EditableCheckpoint&) {});
    }
    static void TearDownTestSuite() { model_.reset(); }

    static ExpertShardWeights shard(int32_t begin, int32_t end) {
        auto loaded = load_expert_shard(*model_->checkpoint, model_->config, model_->release, 3, 17,
                                        begin, end);
        EXPECT_TRUE(loaded) << loaded.status().to_string();
        return loaded ? std::move(*loaded) : ExpertShardWeights{};
    }
    static const StationWeights& station() {
        static const StationWeights weights =
            load_station_weights(*model_->checkpoint, model_->config, nullptr).value();
        return weights;
    }

    static std::unique_ptr<OpenModel> model_;
};
std::unique_ptr<OpenModel> TinyModel::model_;

TEST_F(TinyModel, matrices_keep_the_bits_of_the_file) {
    const MatrixView embed = station().embed.view();
    EXPECT_EQ(embed.format, WeightFormat::kBf16);
    EXPECT_EQ(embed.rows, 2304);
    EXPECT_EQ(embed.cols, 256);
    EXPECT_EQ(data_of(embed), raw("language_model.model.embed_tokens.weight"));

    const MatrixView kv_a = station().layers[3].mla.kv_a_proj.view();
    EXPECT_EQ(kv_a.format, WeightFormat::kFp8Tile);
    EXPECT_EQ(kv_a.rows, 576);
    EXPECT_EQ(kv_a.cols, 256);
    const std::string name = std::string(kModel) + "layers.3.self_attn.kv_a_proj_with_mqa.weight";
    EXPECT_EQ(data_of(kv_a), raw(name));
    EXPECT_EQ(scales_of(kv_a), raw(name + "_scale"));
}

TEST_F(TinyModel, small_tensors_are_widened_to_fp32) {
    const LayerWeights& layer = station().layers[2];
    const std::string prefix = std::string(kModel) + "layers.2.";
    ASSERT_EQ(layer.input_norm.size(), 256u);
    ASSERT_EQ(layer.kda.q_conv.size(), 384u * 4);
    for (const size_t i : {size_t{0}, size_t{100}, size_t{255}}) {
        EXPECT_EQ(layer.input_norm[i],
                  to_f32(raw_value<Bf16>(prefix + "input_layernorm.weight", i)));
        EXPECT_EQ(layer.kda.q_conv[i], raw_value<float>(prefix + "self_attn.q_conv1d.weight", i));
        EXPECT_EQ(layer.kda.dt_bias[i], raw_value<float>(prefix + "self_attn.dt_bias", i));
    }
}

TEST_F(TinyModel, the_padding_of_a_log_is_dropped) {
    const Vector& a_log = station().layers[0].kda.a_log;
    const std::string name = std::string(kModel) + "layers.0.self_attn.A_log";
    ASSERT_EQ(raw(name).size(), 8 * sizeof(float));
    ASSERT_EQ(a_log.size(), 3u);
    EXPECT_EQ(a_log[0], raw_value<float>(name, 0));
    EXPECT_EQ(a_log[2], raw_value<float>(name, 2));
}

TEST_F(TinyModel, mixers_are_norm_times_projection_in_fp32) {
    const auto product = [](const std::string& name, size_t i) {
        return to_f32(raw_value<Bf16>(name + "_norm.weight", i)) *
               to_f32(raw_value<Bf16>(name + "_proj.weight", i));
    };
    const StationWeights& w = station();
    ASSERT_EQ(w.output_mixer.size(), 256u);
    for (size_t i = 0; i < 256; ++i) {
        EXPECT_EQ(w.output_mixer[i], product(std::string(kModel) + "output_attn_res", i));
        EXPECT_EQ(w.layers[4].attention_mixer[i],
                  product(std::string(kModel) + "layers.4.self_attention_res", i));
        EXPECT_EQ(w.layers[4].mlp_mixer[i], product(std::string(kModel) + "layers.4.mlp_res", i));
    }
}

TEST_F(TinyModel, layers_hold_what_their_kind_needs_and_nothing_else) {
    const auto& layers = station().layers;
    ASSERT_EQ(layers.size(), 9u);
    EXPECT_FALSE(layers[0].kda.q_proj.is_empty());
    EXPECT_TRUE(layers[0].mla.q_a_proj.is_empty());
    EXPECT_FALSE(layers[0].dense.gate_proj.is_empty());
    EXPECT_TRUE(layers[0].moe.router.is_empty());
    EXPECT_TRUE(layers[3].kda.q_proj.is_empty());
    EXPECT_FALSE(layers[3].mla.q_a_proj.is_empty());
    EXPECT_TRUE(layers[3].dense.gate_proj.is_empty());
    EXPECT_EQ(layers[3].moe.router.view().rows, 32);
    EXPECT_EQ(layers[3].moe.shared.down_proj.view().cols, 256);
}

TEST_F(TinyModel, progress_grows_to_the_bytes_of_the_station) {
    std::vector<int64_t> done;
    int64_t total = 0;
    const auto weights = load_station_weights(*model_->checkpoint, model_->config,
                                              [&](int64_t done_bytes, int64_t total_bytes) {
                                                  done.push_back(done_bytes);
                                                  total = total_bytes;
                                              });
    ASSERT_TRUE(weights) << weights.status().to_string();
    ASSERT_FALSE(done.empty());
    EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
    EXPECT_EQ(done.back(), total);
    EXPECT_EQ(total, weights->size_bytes);
    // All tensors but the experts: 8 * 32 * 3 * (8192 + 1024 + 8) of 21,245,832 bytes.
    EXPECT_EQ(total, 21'245'832 - 7'084'032);
}

TEST_F(TinyModel, a_whole_expert_has_the_nibbles_of_the_file) {
    const ExpertShardWeights whole = shard(0, 128);
    EXPECT_EQ(data_of(whole.w1.view()), raw(std::string(kExpert) + "w1.weight"));
    EXPECT_EQ(data_of(whole.w2.view()), raw(std::string(kExpert) + "w2.weight"));
    EXPECT_EQ(data_of(whole.w3.view()), raw(std::string(kExpert) + "w3.weight"));
}

float e4m3(uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
    return bits & 0x80 ? -magnitude : magnitude;
}

TEST_F(TinyModel, repacked_scales_are_those_of_the_file) {
    for (const char* w : {"w1", "w2", "w3"}) {
        const ExpertShardWeights whole = shard(0, 128);
        const MatrixView view = (w[1] == '1' ? whole.w1 : w[1] == '2' ? whole.w2 : whole.w3).view();
        ASSERT_EQ(view.format, WeightFormat::kMxfp4);
        const std::string module = std::string(kExpert) + w;
        const std::string scales = scales_of(view);
        ASSERT_EQ(scales.size(), 128u * 4);
        for (size_t block = 0; block < scales.size(); ++block) {
            const float factor = raw_value<float>(module + ".weight_scale_2", 0);
            const float repacked = std::ldexp(1.0f, static_cast<uint8_t>(scales[block]) - 127);
            for (const size_t half : {2 * block, 2 * block + 1}) {
                ASSERT_EQ(repacked,
                          e4m3(raw_value<uint8_t>(module + ".weight_scale", half)) * factor)
                    << module << " block " << block;
            }
        }
    }
}

// Columns [begin, begin + width) of each row.
std::string columns(const std::string& matrix, size_t row_bytes, size_t begin, size_t width) {
    std::string out;
    for (size_t at = 0; at < matrix.size(); at += row_bytes)
        out += matrix.substr(at + begin, width);
    return out;
}

TEST_F(TinyModel, a_slice_holds_rows_of_w1_and_w3_and_columns_of_w2) {
    const ExpertShardWeights whole = shard(0, 128);
    const ExpertShardWeights slice = shard(32, 96);
    EXPECT_EQ(slice.w1.view().rows, 64);
    EXPECT_EQ(slice.w1.view().cols, 128);
    EXPECT_EQ(slice.w2.view().rows, 128);
    EXPECT_EQ(slice.w2.view().cols, 64);
    EXPECT_EQ(data_of(slice.w1.view()), data_of(whole.w1.view()).substr(32 * 64, 64 * 64));
    EXPECT_EQ(scales_of(slice.w1.view()), scales_of(whole.w1.view()).substr(32 * 4, 64 * 4));
    EXPECT_EQ(data_of(slice.w3.view()), data_of(whole.w3.view()).substr(32 * 64, 64 * 64));
    EXPECT_EQ(data_of(slice.w2.view()), columns(data_of(whole.w2.view()), 64, 16, 32));
    EXPECT_EQ(scales_of(slice.w2.view()), columns(scales_of(whole.w2.view()), 4, 1, 2));
}

TEST_F(TinyModel, refuses_shards_that_do_not_exist) {
    const auto refusal = [](int32_t layer, int32_t expert, int32_t begin, int32_t end) {
        return load_expert_shard(*model_->checkpoint, model_->config, model_->release, layer,
                                 expert, begin, end)
            .status()
            .to_string();
    };
    EXPECT_EQ(
        refusal(0, 0, 0, 128),
        "invalid_argument: shard of layer 0, expert 0, columns [0, 128): expected a layer from 1 "
        "to 8, an expert below 32 and multiples of 32 up to 128");
    for (const std::string& text :
         {refusal(9, 0, 0, 128), refusal(1, 32, 0, 128), refusal(1, -1, 0, 128),
          refusal(1, 0, 16, 128), refusal(1, 0, 0, 160), refusal(1, 0, 64, 64),
          refusal(1, 0, -32, 32)}) {
        EXPECT_THAT(text, HasSubstr("invalid_argument: shard of layer "));
    }
}

TEST_F(TinyModel, a_shard_takes_no_more_than_the_bytes_announced) {
    EXPECT_EQ(expert_shard_bytes(model_->config, Release::kNvfp4, 64), 64 * 3 * (64 + 8));
    EXPECT_EQ(expert_shard_bytes(model_->config, Release::kMxfp4, 64), 64 * 3 * (64 + 4));
    EXPECT_EQ(shard(0, 64).size_bytes(), 64 * 3 * (64 + 4));
}

TEST(ModelWeights, a_block_without_exact_mxfp4_form_keeps_its_expert_in_nvfp4) {
    const auto model = open_edited([](EditableCheckpoint& c) {
        c.tensor(std::string(kExpert) + "w3.weight_scale").bytes[5] = 0x39;  // 1.125
    });
    const auto shard =
        load_expert_shard(*model->checkpoint, model->config, model->release, 3, 17, 0, 128);
    ASSERT_TRUE(shard) << shard.status().to_string();
    for (const Matrix* matrix : {&shard->w1, &shard->w2, &shard->w3}) {
        EXPECT_EQ(matrix->view().format, WeightFormat::kNvfp4);
    }
    EXPECT_EQ(scales_of(shard->w1.view()), raw(std::string(kExpert) + "w1.weight_scale"));
    EXPECT_EQ(shard->w1.view().global_scale,
              raw_value<float>(std::string(kExpert) + "w1.weight_scale_2", 0));
    // A slice of other rows of w3 does not hold the block.
    const auto slice =
        load_expert_shard(*model->checkpoint, model->config, model->release, 3, 17, 32, 128);
    ASSERT_TRUE(slice) << slice.status().to_string();
    EXPECT_EQ(slice->w3.view().format, WeightFormat::kMxfp4);
}

TEST(ModelWeights, zero_blocks_repack_unless_their_nibbles_are_not_zero) {
    const auto open_with_nibble = [](char nibble) {
        return open_edited([&](EditableCheckpoint& c) {
            std::string& scales = c.tensor(std::string(kExpert) + "w1.weight_scale").bytes;
            std::string& nibbles = c.tensor(std::string(kExpert) + "w1.weight").bytes;
            scales[0] = scales[1] = 0;
            std::fill(nibbles.begin(), nibbles.begin() + 16, '\x88');  // minus zero
            nibbles[7] = nibble;
        });
    };
    const auto format_of = [](const OpenModel& model) {
        return load_expert_shard(*model.checkpoint, model.config, model.release, 3, 17, 0, 128)
            ->w1.view()
            .format;
    };
    EXPECT_EQ(format_of(*open_with_nibble(0)), WeightFormat::kMxfp4);
    EXPECT_EQ(format_of(*open_with_nibble(1)), WeightFormat::kNvfp4);
}

TEST(ModelWeights, the_mxfp4_release_gives_the_same_experts) {
    const auto nvfp4 = open_edited([](EditableCheckpoint&) {});
    const auto mxfp4 = open_edited(convert_to_mxfp4);
    ASSERT_EQ(mxfp4->release, Release::kMxfp4);
    for (int32_t expert = 0; expert < 32; ++expert) {
        const auto a = load_expert_shard(*nvfp4->checkpoint, nvfp4->config, nvfp4->release, 5,
                                         expert, 32, 128);
        const auto b = load_expert_shard(*mxfp4->checkpoint, mxfp4->config, mxfp4->release, 5,
                                         expert, 32, 128);
        ASSERT_TRUE(a && b) << a.status().to_string() << b.status().to_string();
        EXPECT_EQ(data_of(a->w2.view()), data_of(b->w2.view()));
        EXPECT_EQ(scales_of(a->w1.view()), scales_of(b->w1.view()));
        EXPECT_EQ(scales_of(a->w2.view()), scales_of(b->w2.view()));
        EXPECT_EQ(scales_of(a->w3.view()), scales_of(b->w3.view()));
    }
    const auto station = load_station_weights(*mxfp4->checkpoint, mxfp4->config, nullptr);
    ASSERT_TRUE(station) << station.status().to_string();
    EXPECT_EQ(station->layers[3].mla.kv_b_proj.view().format, WeightFormat::kBf16);
    EXPECT_EQ(station->layers[0].kda.b_proj.view().format, WeightFormat::kBf16);
}

class NotFiniteStation : public ::testing::TestWithParam<const char*> {};

TEST_P(NotFiniteStation, value_is_refused_with_the_tensor) {
    const std::string name = std::string("language_model.") + GetParam();
    const auto model = open_edited([&](EditableCheckpoint& c) { set_nan(c.tensor(name), 2); });
    const auto weights = load_station_weights(*model->checkpoint, model->config, nullptr);
    EXPECT_THAT(weights.status().to_string(),
                HasSubstr("data_loss: tensor " + name + " in " + model->folder.path().string()));
    EXPECT_THAT(weights.status().message(), HasSubstr("holds a value that is NaN or infinite"));
}

INSTANTIATE_TEST_SUITE_P(ModelWeights, NotFiniteStation,
                         ::testing::Values("lm_head.weight", "model.norm.weight",
                                           "model.output_attn_res_proj.weight",
                                           "model.layers.0.self_attn.q_conv1d.weight",
                                           "model.layers.0.self_attn.A_log",
                                           "model.layers.3.self_attn.o_proj.weight",
                                           "model.layers.3.self_attn.o_proj.weight_scale",
                                           "model.layers.3.block_sparse_moe.gate.weight"));

std::string expert_refusal(const std::function<void(EditableCheckpoint&)>& edit, int32_t begin,
                           int32_t end) {
    const auto model = open_edited(edit);
    const auto shard =
        load_expert_shard(*model->checkpoint, model->config, model->release, 3, 17, begin, end);
    return shard ? "loaded" : shard.status().to_string();
}

TEST(ModelWeights, nan_scales_of_an_nvfp4_expert_are_refused_with_the_tensor) {
    for (const char* name : {"w1.weight_scale", "w2.weight_scale", "w3.weight_scale"}) {
        const auto edit = [&](EditableCheckpoint& c) {
            set_nan(c.tensor(std::string(kExpert) + name), 4);  // row 0, columns 64 to 79
        };
        EXPECT_THAT(expert_refusal(edit, 0, 128),
                    HasSubstr("data_loss: tensor " + std::string(kExpert) + name + " in "));
    }
    const auto negative = [](EditableCheckpoint& c) {
        c.tensor(std::string(kExpert) + "w1.weight_scale").bytes[0] = '\xff';
    };
    EXPECT_THAT(expert_refusal(negative, 0, 128), HasSubstr("w1.weight_scale in "));
    const auto factor = [](EditableCheckpoint& c) {
        set_nan(c.tensor(std::string(kExpert) + "w2.weight_scale_2"), 0);
    };
    EXPECT_THAT(expert_refusal(factor, 0, 128), HasSubstr("w2.weight_scale_2 in "));
}

TEST(ModelWeights, a_nan_scale_is_met_by_the_slice_that_holds_it) {
    const auto edit = [](EditableCheckpoint& c) {
        set_nan(c.tensor(std::string(kExpert) + "w2.weight_scale"), 4);  // columns 64 to 79
    };
    EXPECT_THAT(expert_refusal(edit, 64, 96), HasSubstr("w2.weight_scale in "));
    EXPECT_EQ(expert_refusal(edit, 0, 64), "loaded");
}

TEST(ModelWeights, nan_scales_of_an_mxfp4_expert_are_refused_with_the_tensor) {
    const auto edit = [](EditableCheckpoint& c) {
        convert_to_mxfp4(c);
        set_nan(c.tensor(std::string(kExpert) + "w2.weight_scale"), 3);
    };
    EXPECT_THAT(expert_refusal(edit, 96, 128),
                HasSubstr("data_loss: tensor " + std::string(kExpert) + "w2.weight_scale in "));
}

}  // namespace
}  // namespace k3pod

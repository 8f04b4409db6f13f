#include "k3pod/weights/model_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "config_fields.h"
#include "module_formats.h"
#include "tensor_table.h"

namespace k3pod {
namespace {

constexpr int64_t kBf16Bytes = 2;

int64_t num_values(std::span<const int64_t> shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
}

// The releases pad A_log to a power of two, at least 8.
int64_t vector_bytes(const StationVector& vector) {
    int64_t count = num_values(vector.shape);
    if (vector.use == VectorUse::kPadded) {
        count =
            static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(count, 8))));
    }
    return count * dtype_bits(vector.dtype) / 8;
}

Result<int64_t> count_text_bytes(const ModelConfig& config, const ModuleFormats& formats) {
    StationWeights weights;
    const StationTable table = station_table(config, weights);
    int64_t bytes = 0;
    for (const StationMatrix& matrix : table.matrices) {
        WeightFormat format = WeightFormat::kBf16;
        if (matrix.rule == MatrixRule::kAttention) {
            K3POD_ASSIGN(format, formats.claimed(matrix.module));
        }
        bytes += matrix_data_bytes(format, matrix.rows, matrix.cols) +
                 matrix_scale_bytes(format, matrix.rows, matrix.cols);
    }
    for (const StationVector& vector : table.vectors) bytes += vector_bytes(vector);
    return bytes;
}

// The first expert speaks for all, as in check_model().
Result<Release> claimed_release(const ModelConfig& config, const ModuleFormats& formats) {
    const std::string module = expert_module(config.first_dense_layers, 0, Projection::kW1);
    K3POD_ASSIGN(const WeightFormat format, formats.claimed(module));
    if (format == WeightFormat::kNvfp4) return Release::kNvfp4;
    if (format == WeightFormat::kMxfp4) return Release::kMxfp4;
    return invalid_argument(
        fmt::format("quantization_config says that the routed experts ({}) are {}, expected NVFP4 "
                    "or MXFP4",
                    module, weight_format_name(format)));
}

// MoonViT: patches, a learned grid of positions, blocks of attention and MLP without biases, and a
// projector over merged patches. [out, in] as in the text model.
int64_t read_vision_bytes(ConfigFields& root) {
    if (!root.has("vision_config")) return 0;
    constexpr ConfigFields::IntegerRange kSize{1, 1 << 16};
    ConfigFields vision = root.object("vision_config");
    const int64_t width = vision.integer("vt_hidden_size", kSize);
    const int64_t blocks = vision.integer("vt_num_hidden_layers", {1, 1024});
    const int64_t heads = vision.integer("vt_num_attention_heads", {1, 1024});
    const int64_t head_dim = vision.integer("vt_head_dim", {1, 1024});
    const int64_t mlp_width = vision.integer("vt_intermediate_size", kSize);
    const int64_t patch = vision.integer("patch_size", {1, 256});
    const int64_t grid = int64_t{vision.integer("init_pos_emb_height", {1, 4096})} *
                         vision.integer("init_pos_emb_width", {1, 4096});
    const int64_t out_width = vision.integer("text_hidden_size", kSize);
    constexpr int64_t kColours = 3;
    constexpr int64_t kMergedPatches = 4;
    const int64_t attention = 4 * heads * head_dim * width;  // q, k, v and out
    const int64_t block = attention + 2 * width * mlp_width + 2 * width;
    const int64_t tower = kColours * patch * patch * width + grid * width + blocks * block + width;
    const int64_t merged = kMergedPatches * width;
    const int64_t projector = merged * merged + merged * out_width + out_width;
    return kBf16Bytes * (tower + projector);
}

}  // namespace

int64_t expert_file_bytes(const ModelConfig& config, Release release) {
    int64_t bytes = 0;
    for (const Projection projection : kProjections) {
        for (const ExpertTensor& tensor : expert_tensors(config, release, projection)) {
            bytes += num_values(tensor.shape) * dtype_bits(tensor.dtype) / 8;
        }
    }
    return bytes;
}

ModelBytes count_model_bytes(const Checkpoint& checkpoint, const ModelConfig& config,
                             Release release) {
    constexpr std::string_view kExperts = ".block_sparse_moe.experts.";
    ModelBytes bytes{.release = release,
                     .num_experts = int64_t{config.num_moe_layers()} * config.num_experts};
    int64_t all_experts_bytes = 0;
    for (const TensorInfo& tensor : checkpoint.tensors()) {
        int64_t& part = is_vision_tensor(tensor.name)                          ? bytes.vision_bytes
                        : tensor.name.find(kExperts) != std::string_view::npos ? all_experts_bytes
                                                                               : bytes.text_bytes;
        part += tensor.size_bytes;
    }
    bytes.expert_bytes = all_experts_bytes / std::max<int64_t>(bytes.num_experts, 1);
    return bytes;
}

Result<ModelBytes> count_model_bytes(std::string_view text) {
    K3POD_ASSIGN(const ModelConfig config, parse_model_config(text));
    K3POD_ASSIGN(const ModuleFormats formats, ModuleFormats::compile(config.quantization));
    ModelBytes bytes;
    K3POD_ASSIGN(bytes.release, claimed_release(config, formats));
    K3POD_ASSIGN(bytes.text_bytes, count_text_bytes(config, formats));
    bytes.num_experts = int64_t{config.num_moe_layers()} * config.num_experts;
    bytes.expert_bytes = expert_file_bytes(config, bytes.release);

    simdjson::dom::parser parser;
    Status status;
    ConfigFields root(parser.parse(text.data(), text.size()).value_unsafe(), "", status);
    bytes.vision_bytes = read_vision_bytes(root);
    K3POD_TRY(status);
    return bytes;
}

}  // namespace k3pod

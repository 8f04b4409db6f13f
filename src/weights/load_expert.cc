#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "k3pod/base/check.h"
#include "k3pod/weights/model_weights.h"
#include "repack.h"
#include "tensor_lookup.h"
#include "tensor_reader.h"
#include "tensor_table.h"

namespace k3pod {
namespace {

constexpr int32_t kMxfp4Block = 32;

// Columns [begin, end) of the expert's width, which are rows of w1 and w3.
struct WidthSlice {
    int32_t layer, expert, begin, end;
    int32_t width() const { return end - begin; }
};

// Reads the slices of one expert's projections.
class ExpertReader {
  public:
    ExpertReader(const Checkpoint& checkpoint, const ModelConfig& config, Release release)
        : checkpoint_(checkpoint), config_(config), release_(release) {}

    Result<Matrix> read(Projection projection, const WidthSlice& slice) const {
        const bool is_down = projection == Projection::kW2;
        const WeightFormat format =
            release_ == Release::kNvfp4 ? WeightFormat::kNvfp4 : WeightFormat::kMxfp4;
        Matrix matrix(format, is_down ? config_.latent : slice.width(),
                      is_down ? slice.width() : config_.latent);
        std::vector<const TensorInfo*> tensors;
        K3POD_TRY(find_tensors(projection, slice, tensors));
        const ValueKind scale_kind =
            release_ == Release::kNvfp4 ? ValueKind::kE4M3 : ValueKind::kE8M0;
        const auto part = is_down ? &ExpertReader::read_columns : &ExpertReader::read_rows;
        K3POD_TRY((this->*part)(*tensors[0], ValueKind::kNibbles, slice, matrix.mutable_data()));
        K3POD_TRY((this->*part)(*tensors[1], scale_kind, slice, matrix.mutable_scales()));
        if (release_ == Release::kNvfp4) {
            float scale = 0;
            K3POD_TRY(reader_.read(*tensors[2], ValueKind::kF32, 0,
                                   std::as_writable_bytes(std::span(&scale, 1))));
            matrix.set_global_scale(scale);
        }
        return matrix;
    }

  private:
    Status find_tensors(Projection projection, const WidthSlice& slice,
                        std::vector<const TensorInfo*>& out) const {
        const std::string module = expert_module(slice.layer, slice.expert, projection);
        for (const auto& [suffix, dtype, shape] : expert_tensors(config_, release_, projection)) {
            K3POD_ASSIGN(
                const TensorInfo* tensor,
                require_tensor(checkpoint_, fmt::format("{}{}", module, suffix), dtype, shape));
            out.push_back(tensor);
        }
        return Status::ok();
    }

    Status read_rows(const TensorInfo& tensor, ValueKind kind, const WidthSlice& slice,
                     std::span<std::byte> out) const {
        const int64_t row_bytes = tensor.size_bytes / config_.moe_intermediate;
        return reader_.read(tensor, kind, slice.begin * row_bytes, out);
    }

    Status read_columns(const TensorInfo& tensor, ValueKind kind, const WidthSlice& slice,
                        std::span<std::byte> out) const {
        const int64_t row_bytes = tensor.size_bytes / config_.latent;
        // A row holds the whole width; slice borders are multiples of a block, so the share is
        // whole.
        const int64_t begin = row_bytes * slice.begin / config_.moe_intermediate;
        const int64_t width = row_bytes * slice.width() / config_.moe_intermediate;
        return reader_.read_columns(tensor, kind, {row_bytes, begin, width}, out);
    }

    const Checkpoint& checkpoint_;
    const ModelConfig& config_;
    Release release_;
    TensorReader reader_{checkpoint_, nullptr};
};

// All three or none: kernels take the projections of a shard together.
void repack(ExpertShardWeights& shard) {
    auto w1 = repack_as_mxfp4(shard.w1.view());
    auto w2 = repack_as_mxfp4(shard.w2.view());
    auto w3 = repack_as_mxfp4(shard.w3.view());
    if (!w1 || !w2 || !w3) return;
    shard = {.w1 = std::move(*w1), .w3 = std::move(*w3), .w2 = std::move(*w2)};
}

Status check_slice(const ModelConfig& config, const WidthSlice& slice) {
    const bool is_expert = slice.layer >= 0 && slice.layer < config.num_layers &&
                           config.is_moe_layer(slice.layer) && slice.expert >= 0 &&
                           slice.expert < config.num_experts;
    const bool is_inside = slice.begin >= 0 && slice.begin < slice.end &&
                           slice.end <= config.moe_intermediate && slice.begin % kMxfp4Block == 0 &&
                           slice.end % kMxfp4Block == 0;
    if (is_expert && is_inside) return Status::ok();
    return invalid_argument(fmt::format(
        "shard of layer {}, expert {}, columns [{}, {}): expected a layer from {} to {}, an expert "
        "below {} and multiples of {} up to {}",
        slice.layer, slice.expert, slice.begin, slice.end, config.first_dense_layers,
        config.num_layers - 1, config.num_experts, kMxfp4Block, config.moe_intermediate));
}

Result<ExpertShardWeights> read_slice(const Checkpoint& checkpoint, const ModelConfig& config,
                                      Release release, const WidthSlice& slice) {
    K3POD_TRY(check_slice(config, slice));
    const ExpertReader reader(checkpoint, config, release);
    ExpertShardWeights shard;
    K3POD_ASSIGN(shard.w1, reader.read(Projection::kW1, slice));
    K3POD_ASSIGN(shard.w2, reader.read(Projection::kW2, slice));
    K3POD_ASSIGN(shard.w3, reader.read(Projection::kW3, slice));
    return shard;
}

// Of `rows` rows each, bytes [begin, begin + out.size() / rows).
void copy_columns(const std::byte* from, int64_t row_bytes, int64_t begin, int64_t rows,
                  std::span<std::byte> out) {
    const auto width = static_cast<int64_t>(out.size()) / rows;
    for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(out.data() + row * width, from + row * row_bytes + begin,
                    static_cast<size_t>(width));
    }
}

// Rows [begin, end) of w1 and w3.
Matrix cut_rows(const MatrixView& whole, ColumnRange range) {
    Matrix part(whole.format, range.end - range.begin, whole.cols);
    const auto data = part.mutable_data(), scales = part.mutable_scales();
    std::memcpy(data.data(), whole.data + matrix_data_bytes(whole.format, range.begin, whole.cols),
                data.size());
    std::memcpy(scales.data(),
                whole.scales + matrix_scale_bytes(whole.format, range.begin, whole.cols),
                scales.size());
    part.set_global_scale(whole.global_scale);
    return part;
}

// Columns [begin, end) of w2; both are multiples of a block.
Matrix cut_w2(const MatrixView& whole, ColumnRange range) {
    Matrix part(whole.format, whole.rows, range.end - range.begin);
    copy_columns(whole.data, matrix_data_bytes(whole.format, 1, whole.cols),
                 matrix_data_bytes(whole.format, 1, range.begin), whole.rows, part.mutable_data());
    copy_columns(whole.scales, matrix_scale_bytes(whole.format, 1, whole.cols),
                 matrix_scale_bytes(whole.format, 1, range.begin), whole.rows,
                 part.mutable_scales());
    part.set_global_scale(whole.global_scale);
    return part;
}

ExpertShardWeights cut_columns(const ExpertShardWeights& whole, ColumnRange range) {
    return {.w1 = cut_rows(whole.w1.view(), range),
            .w3 = cut_rows(whole.w3.view(), range),
            .w2 = cut_w2(whole.w2.view(), range)};
}

}  // namespace

Result<ExpertShardWeights> load_expert_shard(const Checkpoint& checkpoint,
                                             const ModelConfig& config, Release release,
                                             int32_t layer, int32_t expert, int32_t begin,
                                             int32_t end) {
    K3POD_ASSIGN(ExpertShardWeights shard,
                 read_slice(checkpoint, config, release, {layer, expert, begin, end}));
    if (release == Release::kNvfp4) repack(shard);
    return shard;
}

Result<std::vector<ExpertShardWeights>> load_expert_slices(const Checkpoint& checkpoint,
                                                           const ModelConfig& config,
                                                           Release release, int32_t layer,
                                                           int32_t expert,
                                                           std::span<const ColumnRange> slices) {
    K3POD_CHECK(!slices.empty(), "at least one slice is loaded");
    WidthSlice all{layer, expert, slices[0].begin, slices[0].end};
    for (const auto& [begin, end] : slices) {
        K3POD_TRY(check_slice(config, {layer, expert, begin, end}));
        all.begin = std::min(all.begin, begin);
        all.end = std::max(all.end, end);
    }
    K3POD_ASSIGN(ExpertShardWeights whole, read_slice(checkpoint, config, release, all));
    std::vector<ExpertShardWeights> cut;
    for (const auto& [begin, end] : slices) {
        const bool is_all = begin == all.begin && end == all.end;
        cut.push_back(is_all && slices.size() == 1
                          ? std::move(whole)
                          : cut_columns(whole, {begin - all.begin, end - all.begin}));
        // Each by its own blocks, as if it had been loaded alone.
        if (release == Release::kNvfp4) repack(cut.back());
    }
    return cut;
}

int64_t expert_shard_bytes(const ModelConfig& config, Release release, int32_t width) {
    const WeightFormat format =
        release == Release::kNvfp4 ? WeightFormat::kNvfp4 : WeightFormat::kMxfp4;
    const auto bytes = [&](int32_t rows, int32_t cols) {
        return matrix_data_bytes(format, rows, cols) + matrix_scale_bytes(format, rows, cols);
    };
    return 2 * bytes(width, config.latent) + bytes(config.latent, width);
}

}  // namespace k3pod

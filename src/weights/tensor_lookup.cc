#include "tensor_lookup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace k3pod {
namespace {

constexpr int64_t num_tiles(int64_t extent) {
    return (extent + kFp8TileSize - 1) / kFp8TileSize;
}

Status missing(const Checkpoint& checkpoint, std::string_view name) {
    return data_loss(fmt::format("tensor {} is missing from {}", name, checkpoint.dir().string()));
}

Status wrong(const Checkpoint& checkpoint, const TensorInfo& tensor, DType dtype,
             std::string_view expected_shape) {
    return data_loss(fmt::format("tensor {} in {} is {} [{}], expected {} [{}]", tensor.name,
                                 checkpoint.file_path(tensor.file).string(),
                                 dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "),
                                 dtype_name(dtype), expected_shape));
}

}  // namespace

Result<const TensorInfo*> require_tensor(const Checkpoint& checkpoint, std::string_view name,
                                         DType dtype, std::span<const int64_t> shape) {
    const TensorInfo* tensor = checkpoint.find(name);
    if (tensor == nullptr) return missing(checkpoint, name);
    if (tensor->dtype != dtype || !std::ranges::equal(tensor->shape, shape)) {
        return wrong(checkpoint, *tensor, dtype, fmt::format("{}", fmt::join(shape, ", ")));
    }
    return tensor;
}

Result<const TensorInfo*> require_vector(const Checkpoint& checkpoint,
                                         const StationVector& vector) {
    if (vector.use != VectorUse::kPadded) {
        return require_tensor(checkpoint, vector.tensor, vector.dtype, vector.shape);
    }
    const TensorInfo* tensor = checkpoint.find(vector.tensor);
    if (tensor == nullptr) return missing(checkpoint, vector.tensor);
    const int64_t least = vector.shape.front();
    if (tensor->dtype != vector.dtype || tensor->shape.size() != 1 || tensor->shape[0] < least) {
        return wrong(checkpoint, *tensor, vector.dtype, fmt::format("{} or more", least));
    }
    return tensor;
}

std::optional<WeightFormat> stored_format(const Checkpoint& checkpoint, std::string_view module) {
    std::string name = fmt::format("{}.weight", module);
    const TensorInfo* tensor = checkpoint.find(name);
    if (tensor == nullptr) {
        name += "_packed";
        return checkpoint.find(name) ? std::optional(WeightFormat::kMxfp4) : std::nullopt;
    }
    if (tensor->dtype == DType::kBf16) return WeightFormat::kBf16;
    if (tensor->dtype == DType::kF8E4M3) return WeightFormat::kFp8Tile;
    if (tensor->dtype == DType::kU8) return WeightFormat::kNvfp4;
    return std::nullopt;
}

Result<StoredMatrix> require_matrix(const Checkpoint& checkpoint, const StationMatrix& matrix) {
    const std::string name = matrix.module + ".weight";
    const int64_t shape[] = {matrix.rows, matrix.cols};
    const bool is_fp8 = matrix.rule == MatrixRule::kAttention &&
                        stored_format(checkpoint, matrix.module) == WeightFormat::kFp8Tile;
    if (!is_fp8) {
        K3POD_ASSIGN(const TensorInfo* data, require_tensor(checkpoint, name, DType::kBf16, shape));
        return StoredMatrix{WeightFormat::kBf16, data, nullptr};
    }
    const int64_t scale_shape[] = {num_tiles(matrix.rows), 1, num_tiles(matrix.cols), 1};
    K3POD_ASSIGN(const TensorInfo* data, require_tensor(checkpoint, name, DType::kF8E4M3, shape));
    K3POD_ASSIGN(const TensorInfo* scales,
                 require_tensor(checkpoint, name + "_scale", DType::kF32, scale_shape));
    return StoredMatrix{WeightFormat::kFp8Tile, data, scales};
}

}  // namespace k3pod

#pragma once
// Finding tensors with the dtype and shape that the model needs.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "k3pod/weights/checkpoint.h"
#include "tensor_table.h"

namespace k3pod {

// kDataLoss names tensor, file, found and expected when it is missing or of another dtype or shape.
Result<const TensorInfo*> require_tensor(const Checkpoint& checkpoint, std::string_view name,
                                         DType dtype, std::span<const int64_t> shape);
Result<const TensorInfo*> require_vector(const Checkpoint& checkpoint, const StationVector& vector);

// How the checkpoint stores a module's weight, judged by its name and dtype; nothing when it is
// absent or in no format of this engine.
std::optional<WeightFormat> stored_format(const Checkpoint& checkpoint, std::string_view module);

// A matrix of the station as it lies in the checkpoint.
struct StoredMatrix {
    WeightFormat format;
    const TensorInfo* data;
    const TensorInfo* scales;  // nullptr for BF16.
};
Result<StoredMatrix> require_matrix(const Checkpoint& checkpoint, const StationMatrix& matrix);

}  // namespace k3pod

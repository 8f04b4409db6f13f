#include <algorithm>
#include <cstring>

#include "k3pod/base/bf16.h"
#include "k3pod/weights/model_weights.h"
#include "tensor_lookup.h"
#include "tensor_reader.h"
#include "tensor_table.h"

namespace k3pod {
namespace {

// One tensor on its way: into the memory of a matrix, or widened into a vector.
struct Job {
    const TensorInfo* tensor;
    ValueKind kind;
    std::span<std::byte> memory;
    const StationVector* vector;  // nullptr for a matrix.
};

Status add_matrix(const Checkpoint& checkpoint, const StationMatrix& matrix,
                  std::vector<Job>& jobs) {
    K3POD_ASSIGN(const StoredMatrix stored, require_matrix(checkpoint, matrix));
    const bool is_fp8 = stored.format == WeightFormat::kFp8Tile;
    *matrix.out = Matrix(stored.format, matrix.rows, matrix.cols);
    jobs.push_back({stored.data, is_fp8 ? ValueKind::kE4M3 : ValueKind::kBf16,
                    matrix.out->mutable_data(), nullptr});
    if (is_fp8) {
        jobs.push_back({stored.scales, ValueKind::kF32, matrix.out->mutable_scales(), nullptr});
    }
    return Status::ok();
}

Status add_vector(const Checkpoint& checkpoint, const StationVector& vector,
                  std::vector<Job>& jobs) {
    K3POD_ASSIGN(const TensorInfo* tensor, require_vector(checkpoint, vector));
    int64_t size = 1;
    for (const int64_t extent : vector.shape) size *= extent;
    vector.out->assign(static_cast<size_t>(size), 1.0f);
    const bool is_f32 = vector.dtype == DType::kF32;
    jobs.push_back({tensor, is_f32 ? ValueKind::kF32 : ValueKind::kBf16, {}, &vector});
    return Status::ok();
}

float widened(std::span<const std::byte> bytes, size_t i, DType dtype) {
    if (dtype == DType::kBf16) {
        Bf16 value;
        std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
        return to_f32(value);
    }
    float value;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    return value;
}

Status run(const Job& job, const TensorReader& reader) {
    if (job.vector == nullptr) return reader.read(*job.tensor, job.kind, 0, job.memory);
    std::vector<std::byte> bytes(static_cast<size_t>(job.tensor->size_bytes));
    K3POD_TRY(reader.read(*job.tensor, job.kind, 0, bytes));
    Vector& out = *job.vector->out;
    for (size_t i = 0; i < out.size(); ++i) {
        const float value = widened(bytes, i, job.vector->dtype);
        out[i] = job.vector->use == VectorUse::kFactor ? out[i] * value : value;
    }
    return Status::ok();
}

}  // namespace

Result<StationWeights> load_station_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                            const LoadProgress& progress) {
    StationWeights weights;
    const StationTable table = station_table(config, weights);
    std::vector<Job> jobs;
    for (const StationMatrix& matrix : table.matrices) {
        K3POD_TRY(add_matrix(checkpoint, matrix, jobs));
    }
    for (const StationVector& vector : table.vectors) {
        K3POD_TRY(add_vector(checkpoint, vector, jobs));
    }
    std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
        return std::pair(a.tensor->file, a.tensor->offset_bytes) <
               std::pair(b.tensor->file, b.tensor->offset_bytes);
    });
    for (const Job& job : jobs) weights.size_bytes += job.tensor->size_bytes;
    ProgressMeter meter(progress, weights.size_bytes);
    const TensorReader reader(checkpoint, &meter);
    for (const Job& job : jobs) K3POD_TRY(run(job, reader));
    return weights;
}

}  // namespace k3pod

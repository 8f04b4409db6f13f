#pragma once
// What lies in a checkpoint, for people: its tensors by kind, and in which format its experts would
// be held in memory.

#include <cstdint>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod {

// Tensors whose names differ in numbers only, of one dtype and shape.
struct TensorKind {
    std::string name;  // numbers as "*": "language_model.model.layers.*.self_attn.q_proj.weight"
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    int64_t num_tensors = 0;
    int64_t size_bytes = 0;  // of all of them
};

// Sorted by name, dtype and shape. Reads no tensor.
std::vector<TensorKind> tensor_kinds(const Checkpoint& checkpoint);

struct ExpertId {
    int32_t layer = 0;
    int32_t expert = 0;
    bool operator==(const ExpertId&) const = default;
};

struct ExpertFormats {
    int64_t num_mxfp4 = 0;     // experts held as MXFP4, value for value those of the files
    int64_t memory_bytes = 0;  // of all experts once they are loaded
    // Experts with a block that has no exact MXFP4 form, held as NVFP4, in order.
    std::vector<ExpertId> kept_nvfp4;
};

// Loads every expert once, as a node that holds it whole would, and drops it again: one expert in
// memory at a time, all of their bytes read. kDataLoss and kInvalidArgument name the tensor.
Result<ExpertFormats> inspect_experts(const Checkpoint& checkpoint, const ModelConfig& config,
                                      Release release, const LoadProgress& progress);

}  // namespace k3pod

#pragma once
// The one list of K3's tensors: what they are called, which shapes they have and where in
// StationWeights they belong. Checking and loading both walk it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/weights/model_config.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod {

enum class MatrixRule : uint8_t {
    kPlain,      // BF16 in every release; the releases' config lists do not cover it.
    kLinear,     // BF16; a config that says otherwise is refused.
    kAttention,  // BF16 or FP8 tiles, as the config says.
};

struct StationMatrix {
    std::string module;  // Tensor "<module>.weight", with FP8 also "<module>.weight_scale".
    int32_t rows;
    int32_t cols;
    MatrixRule rule;
    Matrix* out;
};

enum class VectorUse : uint8_t {
    kValues,
    kPadded,  // The file may hold more values than the shape says; the tail is dropped (A_log).
    kFactor,  // Multiplied into `out`, which starts as ones (the two halves of a mixer).
};

struct StationVector {
    std::string tensor;
    DType dtype;
    std::vector<int64_t> shape;
    VectorUse use;
    Vector* out;
};

struct StationTable {
    std::vector<StationMatrix> matrices;
    std::vector<StationVector> vectors;
};

// Every tensor of the station, bound to its place in `weights`, whose layers are created.
StationTable station_table(const ModelConfig& config, StationWeights& weights);

// The three projections of an expert in the order of the files.
enum class Projection : uint8_t { kW1, kW2, kW3 };
inline constexpr Projection kProjections[] = {Projection::kW1, Projection::kW2, Projection::kW3};

// "language_model.model.layers.3.block_sparse_moe.experts.17.w1"
std::string expert_module(int32_t layer, int32_t expert, Projection projection);

// One tensor of an expert's projection.
struct ExpertTensor {
    std::string_view suffix;  // Behind the module's name, ".weight_scale".
    DType dtype;
    std::vector<int64_t> shape;
};
// Data, scales and (NVFP4) the two scalars, in this order.
std::vector<ExpertTensor> expert_tensors(const ModelConfig& config, Release release,
                                         Projection projection);

// Tensors of the parts that this engine leaves out.
bool is_vision_tensor(std::string_view name);

}  // namespace k3pod

#pragma once
// The forward pass on a GPU: the CUDA twin of Model::create().
//
// Steps that only decode (one token a chunk, no probe) replay CUDA graphs made for the next bucket
// of rows; others launch layer by layer. Either way the experts are reached through the hand-off
// (device/hand_off.h): the step thread serves the ExpertPort while the GPU computes.
//
// A row's bits depend on its sequence and on the bucket (or on the sizes of a step with prefill),
// not on its place in the batch nor on when it runs.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "k3pod/device/matrix.h"
#include "k3pod/model/model.h"

namespace k3pod {

// The first GPU that the process sees.
inline constexpr int32_t kCudaModelDevice = 0;

// Brings a matrix from host memory to the device memory that was made for it.
using MatrixWriter = std::function<Status(const MatrixView& host, const MatrixView& device)>;

struct CudaModelOptions {
    int32_t max_rows = 0;     // tokens of one step
    int32_t max_context = 0;  // tokens of one sequence; 0: as many as the store has pages for
    MatrixWriter write;       // empty: copies; benchmarks have other ideas
};

// GPU time of one step, from kernel to kernel.
struct KernelTime {
    const char* kind;  // "kda_projections"
    int32_t launches;
    double microseconds;
};

class CudaModel : public Model {
  public:
    // On kCudaModelDevice. Takes the weights, whose host memory is freed layer by layer as they
    // arrive on the GPU; borrows state, which keeps its memory on the same GPU
    // (make_cuda_state_memory) and outlives the model. kNotFound when there is no GPU,
    // kFailedPrecondition when the program has no CUDA back end or no code for this GPU,
    // kInvalidArgument with a kernel's name for a size that it does not take, kResourceExhausted
    // with the bytes that are missing.
    static Result<std::unique_ptr<CudaModel>> create(const ModelConfig& config,
                                                     StationWeights weights, StateStore& state,
                                                     const CudaModelOptions& options);

    // Runs a step that only decodes, with the clock read after every kernel. Advances the state.
    virtual Result<std::vector<KernelTime>> profile(const ModelStep& step, ExpertPort& experts) = 0;
};

}  // namespace k3pod

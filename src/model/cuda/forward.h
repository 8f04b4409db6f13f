#pragma once
// The forward pass over one step on a GPU. The parts of the network own their work buffers; this
// class owns their order, the graphs and the memory that crosses to the host.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/model/cuda_model.h"
#include "model/cuda/attn_res.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/expert_exchange.h"
#include "model/cuda/kda.h"
#include "model/cuda/mla.h"
#include "model/cuda/mlp.h"
#include "model/cuda/moe.h"
#include "model/cuda/step_input.h"
#include "model/cuda/step_launch.h"
#include "model/step_rows.h"

namespace k3pod {

class CudaForwardPass final : public CudaModel {
  public:
    // The arguments have been checked, and the calling thread uses the GPU, by CudaModel::create.
    static Result<std::unique_ptr<CudaModel>> create(const ModelConfig& config,
                                                     DeviceWeights weights, StateStore& state,
                                                     const CudaModelOptions& options);

    Status forward(const ModelStep& step, ExpertPort& experts, std::span<float> logits,
                   ForwardProbe* probe) override;
    Result<std::vector<KernelTime>> profile(const ModelStep& step, ExpertPort& experts) override;

  private:
    // Called when the launches of a layer are queued; may be empty.
    using AfterLayer = std::function<Status(int32_t layer)>;

    CudaForwardPass(const ModelConfig& config, DeviceWeights weights, const StateStore& state,
                    int32_t max_rows);
    Status allocate(StateStore& state, const CudaModelOptions& options);
    Status record_graphs();

    // A step that decodes, as graphs of some layers each.
    using Segments = std::vector<DeviceGraph>;
    bool is_decode() const;
    Result<Segments> record(const StepLaunch& step);
    Status replay(const Segments& segments, uint64_t step, ExpertPort& experts);
    Status replay_bucket(uint64_t step, ExpertPort& experts, std::span<float> logits);
    void copy_decoded(std::span<float> logits) const;
    // Any step: layer by layer, with the experts served in between.
    Status run(const ModelStep& step, ExpertPort& experts, std::span<float> logits,
               ForwardProbe* probe);
    Status finish(const Status& served);
    Status wait_for_work() const;

    // What both queue.
    StepLaunch decode_launch(int32_t bucket) const;
    StepLaunch mixed_launch(int32_t rows, int32_t num_chunks, int32_t max_chunk_rows) const;
    struct LayerRange {
        int32_t begin = 0, end = 0;
    };
    int32_t num_segments() const;
    Status launch_segment(const StepLaunch& step, int32_t segment);
    Status launch_input(const StepLaunch& step);
    Status launch_layers(const StepLaunch& step, LayerRange layers, const AfterLayer& after_layer);
    Status attention(const StepLaunch& step, int32_t layer);
    Status mlp(const StepLaunch& step, int32_t layer);
    Status head(const StepLaunch& step, int32_t num_logits);
    Status head_of_chunks(const StepLaunch& step, std::span<float> logits);
    Status show(const StepLaunch& step, int32_t layer, ForwardProbe& probe);

    const ModelConfig config_;
    const DeviceWeights weights_;
    std::vector<int32_t> index_in_kind_;  // per layer: KDA or MLA layers below it
    int32_t max_rows_;
    int32_t num_slots_;

    DeviceStream stream_;
    StepRows rows_;
    StepInput input_;
    std::unique_ptr<ExpertExchange> exchange_;
    CudaAttnRes attn_res_;
    CudaKda kda_;
    CudaMla mla_;
    CudaMlp dense_;
    CudaMoe moe_;
    DeviceRowBuffer x_;         // [R, H] what a sublayer reads
    DeviceRowBuffer logits_;    // [slice, V]
    PinnedBuffer host_logits_;  // [slice, V]
    DeviceBuffer workspace_;

    struct Bucket {
        int32_t rows;
        Segments segments;
    };
    std::vector<Bucket> buckets_;  // by rows, ascending
};

}  // namespace k3pod

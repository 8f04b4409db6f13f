#pragma once
// The experts of one holder, in the memory of one back end, and the work of one frame on them. What
// an expert server and the station's own tier run, whichever the back end.

#include <cstdint>
#include <memory>
#include <span>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/config/pod_config.h"
#include "k3pod/device/cuda.h"
#include "k3pod/placement/placement.h"
#include "k3pod/weights/model_weights.h"
#include "k3pod/wire/frame.h"

namespace k3pod {

// What to load, and from where. Borrowed until load() returns.
struct ExpertTierSource {
    const Checkpoint& checkpoint;
    const ModelConfig& config;
    Release release;
    std::span<const Shard> shards;  // of one holder
};

// The GPU that tiers and the station's model work on: the first that the process sees. Refused are
// a program without the CUDA back end (kFailedPrecondition), a machine without a GPU (kNotFound),
// and a GPU that the kernels were not built for (kFailedPrecondition).
Result<CudaProperties> usable_gpu();

class ExpertTier {
  public:
    virtual ~ExpertTier() = default;

    // Loads the shards in file order into the memory of `backend`: the host's, or that of
    // usable_gpu() (pinned host memory where both share one). max_rows bounds the rows of a frame.
    // Errors of usable_gpu() come back as they are; kResourceExhausted names the bytes; damaged
    // tensors are kDataLoss. `progress` may be null.
    static Result<std::unique_ptr<ExpertTier>> load(Backend backend, const ExpertTierSource& source,
                                                    int32_t max_rows, const LoadProgress& progress);

    // The work of one frame, with the contract of ExpertRunner::run (expert_store.h). Any thread,
    // one call at a time. On a GPU: kInternal when the device failed; the tier is then unusable.
    virtual Status run(int32_t layer, int32_t rows, std::span<const Bf16> latents,
                       std::span<const wire::WireEntry> entries, std::span<float> out) = 0;

    virtual int64_t size_bytes() const = 0;
    virtual int64_t num_shards() const = 0;
    // Of these, in the format of the NVFP4 release.
    virtual int64_t num_nvfp4_shards() const = 0;
};

}  // namespace k3pod

#pragma once
// Where the time of a step goes: an event behind every launch, sorted by kind of kernel.

#include <cstdint>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/model/cuda_model.h"

namespace k3pod {

enum class KernelKind : uint8_t {
    kInput,  // copies to the GPU, embedding
    kAttnRes,
    kKdaProjections,
    kKdaCore,
    kMlaProjections,
    kMlaAttention,
    kAttentionOut,
    kRouter,  // with the projection to the latent
    kDispatch,
    kSharedExperts,
    kCombine,  // the wait for the experts included
    kLatentUp,
    kDenseMlp,
    kHead,  // with the copy of the logits
};
inline constexpr size_t kNumKernelKinds = 14;

class KernelClock {
  public:
    // May be called while `stream` is being recorded into a graph.
    Status start(CudaStream stream);
    Status mark(KernelKind kind, CudaStream stream);
    // After the work has run.
    Result<std::vector<KernelTime>> read() const;

  private:
    struct Mark {
        KernelKind kind;
        DeviceEvent event;
    };
    std::vector<Mark> marks_;  // the first one is the start
};

}  // namespace k3pod

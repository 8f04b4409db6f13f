#pragma once
// Fills matrices on the GPU with random values at the speed of its memory.

#include <cstdint>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/matrix.h"

namespace k3pod::bench {

// Values are drawn once, into blocks that are copied over and over: what a kernel reads is random,
// finite, and of a size that keeps activations near one.
class RandomWeights {
  public:
    static Result<RandomWeights> create();

    // A MatrixWriter: whatever lies on the host is not looked at.
    Status write(const MatrixView& device) const;
    Status fill_bf16(std::byte* device, int64_t bytes) const;

  private:
    DeviceBuffer bf16_, e4m3_, scales_;
};

}  // namespace k3pod::bench

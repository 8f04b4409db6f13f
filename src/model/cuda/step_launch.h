#pragma once
// What the launches of one step share.

#include <cstdint>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/kernels/step_chunks.h"
#include "model/cuda/kernel_clock.h"

namespace k3pod {

struct StepLaunch {
    int32_t rows = 0;                    // R, padding included
    const int32_t* rows_used = nullptr;  // device, read when kernels run
    const int32_t* ids = nullptr;        // [R], device; -1 for padding
    kernels::StepChunks chunks;
    CudaStream stream = nullptr;
    std::byte* workspace = nullptr;  // of the products, which run one behind the other
    KernelClock* clock = nullptr;    // null: no times are wanted

    // Passes the status of a launch on, and reads the clock behind it.
    Status done(KernelKind kind, const Status& launched) const {
        if (!launched.is_ok() || clock == nullptr) return launched;
        return clock->mark(kind, stream);
    }
};

// [rows, width] fp32 in device memory, contents undefined until written.
class DeviceRowBuffer {
  public:
    DeviceRowBuffer() = default;
    static Result<DeviceRowBuffer> create(int64_t rows, int64_t width) {
        DeviceRowBuffer buffer;
        buffer.width_ = width;
        K3POD_ASSIGN(buffer.memory_, DeviceBuffer::create(rows * width * int64_t{sizeof(float)}));
        return buffer;
    }
    float* data() const { return memory_.as<float>(); }
    int64_t width() const { return width_; }

  private:
    int64_t width_ = 0;
    DeviceBuffer memory_;
};

}  // namespace k3pod

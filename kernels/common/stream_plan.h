#pragma once
// How a launch of common/stream.cuh is cut up for the device that it runs on.

#include <cstdint>
#include <optional>

#include "common/stream_shape.h"
#include "k3pod/base/status.h"

namespace k3pod::kernels {

struct DeviceLimits {
    int32_t num_sms = 0;
    int64_t shared_bytes = 0;  // of a block, after opting in
};
// Of the calling thread's device.
Result<DeviceLimits> current_device_limits();

struct StreamPlan {
    StreamShape shape;
    int32_t grid = 0;
    int64_t shared_bytes = 0;
};

// For num_tiles tiles of rows of row_bytes beside an operand of operand_bytes. None when too little
// shared memory would be left for the ring.
std::optional<StreamPlan> plan_stream(const DeviceLimits& limits, int64_t num_tiles,
                                      int64_t row_bytes, int64_t operand_bytes);

}  // namespace k3pod::kernels

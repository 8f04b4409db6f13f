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
    int32_t stages = 0;  // kFewStages or kManyStages
    int32_t grid = 0;    // blocks, whole clusters
    int64_t shared_bytes = 0;
};

struct StreamWork {
    WeightFormat format = WeightFormat::kBf16;
    int64_t num_tiles = 0;
    int32_t row_bytes = 0;
    int32_t columns = 0;     // of the operand, both parts
    int32_t sum_values = 0;  // of a lane
};
// The grid fills the device with clusters, of which no more than `most_clusters` may be there at a
// time (0: as many as there are multiprocessors for). None when the columns do not fit the shared
// memory of the largest cluster.
std::optional<StreamPlan> plan_stream(const DeviceLimits& limits, const StreamWork& work,
                                      int32_t most_clusters = 0);

// How many of a block's warps should share each of its `tiles` tiles with `steps` steps a row:
// every warp has as little to do as can be, and as few sums to exchange.
int32_t group_warps_for(int32_t warps, int64_t tiles, int32_t steps);

}  // namespace k3pod::kernels

#include "common/stream_plan.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "k3pod/device/cuda.h"

namespace k3pod::kernels {
namespace {

// What a block can load and split while its first weights arrive.
constexpr int64_t kQuickOperandBytes = 40 * 1024;
constexpr int64_t kStaticBytes = 128;  // the kernel's own

int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

}  // namespace

Result<DeviceLimits> current_device_limits() {
    int device = 0, sms = 0, shared = 0;
    K3POD_TRY(cuda_status(cudaGetDevice(&device), "cudaGetDevice"));
    K3POD_TRY(cuda_status(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
                          "cudaDeviceGetAttribute"));
    K3POD_TRY(cuda_status(
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute"));
    return DeviceLimits{sms, shared};
}

int32_t group_warps_for(int32_t block_warps, int64_t tiles, int32_t steps) {
    int32_t best = 1;
    int64_t least = 0;
    for (int32_t warps = 1; warps <= block_warps; warps *= 2) {
        // A tile's end costs a warp about as much as half a step.
        const int64_t rounds = ceil_div(tiles, block_warps / warps);
        const int64_t cost = rounds * (2 * ceil_div(steps, warps) + 1);
        if (warps == 1 || cost < least) best = warps, least = cost;
    }
    return best;
}

std::optional<StreamPlan> plan_stream(const DeviceLimits& limits, const StreamWork& work,
                                      int32_t most_clusters) {
    StreamPlan plan;
    StreamShape& shape = plan.shape;
    shape.row_bytes = work.row_bytes;
    shape.warps = stream_warps(limits.shared_bytes);
    const auto operand_bytes = [&] {
        return int64_t{work.columns} *
               operand_column_bytes(units_per_16_bytes(work.format), shape.block_steps());
    };
    const auto shared_bytes = [&](int32_t stages) {
        return ring_bytes(work.format, shape.warps, stages) +
               sums_bytes(work.sum_values, shape.warps) + operand_bytes();
    };
    if (operand_bytes() > kQuickOperandBytes && shape.num_steps() > 1) shape.cluster = 2;
    while (shared_bytes(kFewStages) > limits.shared_bytes - kStaticBytes) {
        if (shape.cluster == kMaxStreamCluster || shape.block_steps() == 1) return std::nullopt;
        shape.cluster *= 2;
    }
    const bool is_roomy = shared_bytes(kManyStages) <= limits.shared_bytes - kStaticBytes;
    plan.stages = is_roomy ? kManyStages : kFewStages;
    if (most_clusters == 0) most_clusters = limits.num_sms / shape.cluster;
    const int64_t clusters = std::min<int64_t>(most_clusters, work.num_tiles);
    plan.grid = static_cast<int32_t>(clusters) * shape.cluster;
    shape.group_warps =
        group_warps_for(shape.warps, ceil_div(work.num_tiles, clusters), shape.block_steps());
    plan.shared_bytes = shared_bytes(plan.stages);
    return plan;
}

}  // namespace k3pod::kernels

#include "common/stream_plan.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "k3pod/device/cuda.h"

namespace k3pod::kernels {
namespace {

constexpr int64_t kMinChunkBytes = 512;

int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// Into chunks of equal length up to `longest`.
void cut_rows(StreamShape& shape, int64_t longest) {
    shape.num_chunks = static_cast<int32_t>(ceil_div(shape.row_bytes, longest));
    const int64_t even = ceil_div(shape.row_bytes, shape.num_chunks);
    shape.chunk_bytes = static_cast<int32_t>(ceil_div(even, 128) * 128);
    // The last step of a row may read, and ignore, what lies behind it.
    const int64_t bytes = kTileRows * shape.stage_stride() + kStepBytes;
    shape.stage_bytes = static_cast<int32_t>(ceil_div(bytes, 128) * 128);
}

// Every group should find a tile: with fewer tiles than groups, more warps share each.
int32_t num_groups_for(int64_t tiles_per_block) {
    if (tiles_per_block > 2) return 4;
    return static_cast<int32_t>(tiles_per_block);
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

std::optional<StreamPlan> plan_stream(const DeviceLimits& limits, int64_t num_tiles,
                                      int64_t row_bytes, int64_t operand_bytes) {
    StreamPlan plan;
    plan.grid = static_cast<int32_t>(std::min<int64_t>(limits.num_sms, num_tiles));
    StreamShape& shape = plan.shape;
    shape.row_bytes = static_cast<int32_t>(row_bytes);
    shape.num_groups = num_groups_for(ceil_div(num_tiles, plan.grid));
    shape.operand_bytes = static_cast<int32_t>(ceil_div(operand_bytes, 128) * 128);
    const int64_t before_ring = kStreamMemoryBytes + shape.operand_bytes;
    const int64_t ring_bytes = limits.shared_bytes - before_ring;
    // Long copies are cheaper, but every group needs a stage, and one more to come.
    for (int64_t longest = kMaxChunkBytes; longest >= kMinChunkBytes; longest /= 2) {
        cut_rows(shape, longest);
        shape.num_stages =
            static_cast<int32_t>(std::min<int64_t>(kMaxStages, ring_bytes / shape.stage_bytes));
        if (shape.num_stages > shape.num_groups) break;
    }
    // With fewer, a group could take the phase before last of its slot for the one it waits for.
    if (shape.num_stages < std::max(2, shape.num_groups)) return std::nullopt;
    plan.shared_bytes = before_ring + int64_t{shape.num_stages} * shape.stage_bytes;
    return plan;
}

}  // namespace k3pod::kernels

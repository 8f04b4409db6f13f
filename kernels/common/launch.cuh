#pragma once
// The one way to launch a kernel: checked, by name, with or without a programmatic edge to the
// kernel before it.

#include <cuda_runtime.h>

#include <utility>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::kernels {

struct LaunchShape {
    dim3 grid = 1;
    dim3 block = 1;
    int64_t shared_bytes = 0;  // above 48 KiB allow_shared() comes first
    unsigned cluster = 1;      // neighbouring blocks that run together; divides grid.x
    // Lets the kernel begin while the one before it ends. It must then call
    // cudaGridDependencySynchronize() before it touches anything that is written by others.
    bool overlaps_previous = false;
};

// Queues kernel(args...) on `stream`. `name` is the kernel's, for the error.
template <class... Params, class... Args>
Status launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape,
              CudaStream stream, Args&&... args) {
    cudaLaunchAttribute attributes[2];
    unsigned num_attributes = 0;
    if (shape.overlaps_previous) {
        cudaLaunchAttribute& overlap = attributes[num_attributes++];
        overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        overlap.val.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster > 1) {
        cudaLaunchAttribute& cluster = attributes[num_attributes++];
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {shape.cluster, 1, 1};
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = num_attributes;
    return cuda_status(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), name);
}

// How many clusters of a launch the device holds at a time: multiprocessors come in groups that a
// cluster does not cross, so some may stay idle.
template <class... Params>
Result<int32_t> most_active_clusters(const char* name, void (*kernel)(Params...),
                                     const LaunchShape& shape) {
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {shape.cluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.attrs = &cluster;
    config.numAttrs = 1;
    int count = 0;
    K3POD_TRY(cuda_status(cudaOccupancyMaxActiveClusters(&count, kernel, &config), name));
    return count;
}

// Lets launches of `kernel` ask for up to `bytes` of dynamic shared memory.
template <class... Params>
Status allow_shared(const char* name, void (*kernel)(Params...), int64_t bytes) {
    return cuda_status(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        name);
}

}  // namespace k3pod::kernels

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>

#include "device/cuda/call.h"
#include "k3pod/device/cuda.h"

namespace k3pod {
namespace {

Status copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, CudaStream stream) {
    if (bytes == 0) return Status::ok();
    CUDA_TRY(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream));
    return Status::ok();
}

Status out_of_memory(int64_t bytes) {
    (void)cudaGetLastError();
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    return resource_exhausted(fmt::format(
        "the GPU has {:.2f} GiB free of {:.2f} GiB, and {:.2f} GiB more are needed",
        static_cast<double>(free_bytes) / (1 << 30), static_cast<double>(total_bytes) / (1 << 30),
        static_cast<double>(bytes) / (1 << 30)));
}

}  // namespace

Result<DeviceBuffer> DeviceBuffer::create(int64_t bytes) {
    DeviceBuffer buffer;
    if (bytes == 0) return buffer;
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) return out_of_memory(bytes);
    K3POD_TRY(cuda_status(error, "cudaMalloc"));
    buffer.data_.reset(static_cast<std::byte*>(data));
    buffer.size_ = bytes;
    return buffer;
}

void DeviceBuffer::Free::operator()(std::byte* data) const {
    (void)cudaFree(data);
}

Result<PinnedBuffer> PinnedBuffer::create(int64_t bytes) {
    PinnedBuffer buffer;
    if (bytes == 0) return buffer;
    void* data = nullptr;
    CUDA_TRY(cudaHostAlloc(&data, static_cast<size_t>(bytes),
                           cudaHostAllocPortable | cudaHostAllocMapped));
    std::memset(data, 0, static_cast<size_t>(bytes));
    buffer.data_.reset(static_cast<std::byte*>(data));
    buffer.size_ = bytes;
    return buffer;
}

void PinnedBuffer::Free::operator()(std::byte* data) const {
    (void)cudaFreeHost(data);
}

Status copy_to_device(void* device, const void* host, int64_t bytes, CudaStream stream) {
    return copy(device, host, bytes, cudaMemcpyHostToDevice, stream);
}

Status copy_to_host(void* host, const void* device, int64_t bytes, CudaStream stream) {
    return copy(host, device, bytes, cudaMemcpyDeviceToHost, stream);
}

Status copy_on_device(void* to, const void* from, int64_t bytes, CudaStream stream) {
    return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

Status fill_device(void* device, uint8_t value, int64_t bytes, CudaStream stream) {
    if (bytes == 0) return Status::ok();
    CUDA_TRY(cudaMemsetAsync(device, value, static_cast<size_t>(bytes), stream));
    return Status::ok();
}

}  // namespace k3pod

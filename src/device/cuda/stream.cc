#include <cuda_runtime_api.h>

#include "device/cuda/call.h"
#include "k3pod/device/cuda.h"

namespace k3pod {

Result<DeviceStream> DeviceStream::create() {
    cudaStream_t stream = nullptr;
    CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    DeviceStream owned;
    owned.stream_.reset(stream);
    return owned;
}

void DeviceStream::Destroy::operator()(CudaStream stream) const {
    (void)cudaStreamDestroy(stream);
}

Status DeviceStream::synchronize() const {
    CUDA_TRY(cudaStreamSynchronize(stream_.get()));
    return Status::ok();
}

Status DeviceStream::poll() const {
    const cudaError_t error = cudaStreamQuery(stream_.get());
    if (error == cudaErrorNotReady) return unavailable("the stream still has work to do");
    return cuda_status(error, "cudaStreamQuery");
}

Result<DeviceEvent> DeviceEvent::create() {
    cudaEvent_t event = nullptr;
    CUDA_TRY(cudaEventCreate(&event));
    DeviceEvent owned;
    owned.event_.reset(event);
    return owned;
}

void DeviceEvent::Destroy::operator()(CUevent_st* event) const {
    (void)cudaEventDestroy(event);
}

Status DeviceEvent::record(CudaStream stream) const {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    CUDA_TRY(cudaStreamIsCapturing(stream, &capture));
    // In a graph a plain record is an edge and no moment.
    const bool is_recorded = capture == cudaStreamCaptureStatusActive;
    CUDA_TRY(cudaEventRecordWithFlags(
        event_.get(), stream, is_recorded ? cudaEventRecordExternal : cudaEventRecordDefault));
    return Status::ok();
}

Status DeviceEvent::block(CudaStream stream) const {
    CUDA_TRY(cudaStreamWaitEvent(stream, event_.get(), 0));
    return Status::ok();
}

Status DeviceEvent::synchronize() const {
    CUDA_TRY(cudaEventSynchronize(event_.get()));
    return Status::ok();
}

Result<double> DeviceEvent::microseconds_since(const DeviceEvent& begin) const {
    float milliseconds = 0;
    CUDA_TRY(cudaEventElapsedTime(&milliseconds, begin.event_.get(), event_.get()));
    return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace k3pod

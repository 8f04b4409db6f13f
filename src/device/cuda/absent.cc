// device/cuda.h in a program without the CUDA back end.

#include "k3pod/device/cuda.h"

namespace k3pod {
namespace {

Status not_built() {
    return failed_precondition(
        "this program was built without CUDA; build it where nvcc (CUDA 13.0) is installed, or "
        "choose the CPU back end");
}

}  // namespace

bool cuda_is_built() {
    return false;
}

int32_t num_cuda_devices() {
    return 0;
}

Result<CudaProperties> cuda_properties(int32_t) {
    return not_built();
}

Status use_cuda_device(int32_t) {
    return not_built();
}

Status cuda_status(int error, const char*) {
    return error == 0 ? Status::ok() : not_built();
}

Result<DeviceBuffer> DeviceBuffer::create(int64_t) {
    return not_built();
}

void DeviceBuffer::Free::operator()(std::byte*) const {}

Result<PinnedBuffer> PinnedBuffer::create(int64_t) {
    return not_built();
}

void PinnedBuffer::Free::operator()(std::byte*) const {}

Status copy_to_device(void*, const void*, int64_t, CudaStream) {
    return not_built();
}

Status copy_to_host(void*, const void*, int64_t, CudaStream) {
    return not_built();
}

Status copy_on_device(void*, const void*, int64_t, CudaStream) {
    return not_built();
}

Status fill_device(void*, uint8_t, int64_t, CudaStream) {
    return not_built();
}

Result<DeviceStream> DeviceStream::create() {
    return not_built();
}

void DeviceStream::Destroy::operator()(CudaStream) const {}

Status DeviceStream::synchronize() const {
    return not_built();
}

Status DeviceStream::poll() const {
    return not_built();
}

Result<DeviceEvent> DeviceEvent::create() {
    return not_built();
}

void DeviceEvent::Destroy::operator()(CUevent_st*) const {}

Status DeviceEvent::record(CudaStream) const {
    return not_built();
}

Status DeviceEvent::block(CudaStream) const {
    return not_built();
}

Status DeviceEvent::synchronize() const {
    return not_built();
}

Result<double> DeviceEvent::microseconds_since(const DeviceEvent&) const {
    return not_built();
}

Result<DeviceGraph> DeviceGraph::capture(CudaStream, const std::function<Status(CudaStream)>&) {
    return not_built();
}

void DeviceGraph::Destroy::operator()(CUgraphExec_st*) const {}

Status DeviceGraph::launch(CudaStream) const {
    return not_built();
}

}  // namespace k3pod

#pragma once
// NVIDIA GPUs, without CUDA's headers: what a device is, memory, streams, events, graphs, and
// CUDA's error codes as Status. Built without CUDA, num_cuda_devices() is 0 and everything that
// would need a device is kFailedPrecondition.
//
// The current device belongs to the calling thread (use_cuda_device); objects are made on it and
// are used by one thread at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "k3pod/base/status.h"

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace k3pod {

// A borrowed stream (cudaStream_t). nullptr is the device's default stream.
using CudaStream = CUstream_st*;

struct CudaProperties {
    std::string name;   // "NVIDIA H200"
    int32_t major = 0;  // compute capability
    int32_t minor = 0;
    int32_t num_sms = 0;
    int64_t memory_bytes = 0;
    int64_t free_bytes = 0;  // when asked
    int64_t l2_bytes = 0;
    int64_t max_shared_bytes = 0;  // per block, after opting in
    bool is_integrated = false;    // shares one memory with the host
};

// Whether this program contains the CUDA back end.
bool cuda_is_built();
// GPUs that this process may use; 0 without a driver. Any thread.
int32_t num_cuda_devices();
// kNotFound names the device and how many there are. Any thread.
Result<CudaProperties> cuda_properties(int32_t device);
// Makes `device` the calling thread's device.
Status use_cuda_device(int32_t device);

// Ok for 0, else kInternal (kResourceExhausted when memory ran out): what was tried, CUDA's name of
// the error and its sentence. `error` is a cudaError_t; `what` is the call or the kernel.
Status cuda_status(int error, const char* what);

// Memory on the device, aligned to 256 bytes, freed on destruction. Contents start undefined.
class DeviceBuffer {
  public:
    DeviceBuffer() = default;
    // kResourceExhausted names the bytes wanted and free. 0 is allowed and allocates nothing.
    static Result<DeviceBuffer> create(int64_t bytes);

    std::byte* data() const { return data_.get(); }
    template <class T>
    T* as() const {
        return reinterpret_cast<T*>(data_.get());
    }
    int64_t size_bytes() const { return size_; }

  private:
    struct Free {
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    int64_t size_ = 0;
};

// Page-locked host memory that kernels reach too, at the same address. Zeroed. Freed on
// destruction.
class PinnedBuffer {
  public:
    PinnedBuffer() = default;
    static Result<PinnedBuffer> create(int64_t bytes);

    std::byte* data() const { return data_.get(); }
    template <class T>
    T* as() const {
        return reinterpret_cast<T*>(data_.get());
    }
    int64_t size_bytes() const { return size_; }

  private:
    struct Free {
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    int64_t size_ = 0;
};

// Copies and fills in stream order. Host memory that is not pinned makes the call wait until its
// bytes have been read or written. Both sides must stay valid until the stream has passed the copy.
Status copy_to_device(void* device, const void* host, int64_t bytes, CudaStream stream = nullptr);
Status copy_to_host(void* host, const void* device, int64_t bytes, CudaStream stream = nullptr);
Status copy_on_device(void* to, const void* from, int64_t bytes, CudaStream stream = nullptr);
Status fill_device(void* device, uint8_t value, int64_t bytes, CudaStream stream = nullptr);

// A stream of its own, which does not wait for the default one.
class DeviceStream {
  public:
    static Result<DeviceStream> create();
    CudaStream get() const { return stream_.get(); }
    // Waits for everything launched so far; returns the first error of it.
    Status synchronize() const;
    // Ok when all work is done, kUnavailable while some is not, else its error. Does not wait.
    Status poll() const;

  private:
    struct Destroy {
        void operator()(CudaStream stream) const;
    };
    std::unique_ptr<CUstream_st, Destroy> stream_;
};

// A moment in a stream.
class DeviceEvent {
  public:
    static Result<DeviceEvent> create();
    // While `stream` is being recorded: a node that keeps the time whenever the graph runs.
    Status record(CudaStream stream) const;
    // Work launched into `stream` from here on waits for the recorded moment.
    Status block(CudaStream stream) const;
    Status synchronize() const;
    // Microseconds from `begin` to this; both must have been reached.
    Result<double> microseconds_since(const DeviceEvent& begin) const;

  private:
    struct Destroy {
        void operator()(CUevent_st* event) const;
    };
    std::unique_ptr<CUevent_st, Destroy> event_;
};

// Recorded launches, replayed by one call.
class DeviceGraph {
  public:
    DeviceGraph() = default;
    // Calls record(stream) with launches being recorded instead of run. Returns its error as it is.
    static Result<DeviceGraph> capture(CudaStream stream,
                                       const std::function<Status(CudaStream)>& record);
    Status launch(CudaStream stream) const;
    bool is_empty() const { return exec_ == nullptr; }

  private:
    struct Destroy {
        void operator()(CUgraphExec_st* exec) const;
    };
    std::unique_ptr<CUgraphExec_st, Destroy> exec_;
};

}  // namespace k3pod

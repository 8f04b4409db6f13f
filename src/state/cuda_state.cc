// The state of sequences in a GPU's memory.

#include <utility>

#include "k3pod/device/cuda.h"
#include "k3pod/state/state_store.h"

namespace k3pod {
namespace {

class CudaMemory final : public StateMemory {
  public:
    CudaMemory(DeviceBuffer recurrent, DeviceBuffer conv, DeviceBuffer pages, DeviceStream stream)
        : recurrent_(std::move(recurrent)),
          conv_(std::move(conv)),
          pages_(std::move(pages)),
          stream_(std::move(stream)) {}

    StatePools pools() override { return {recurrent_.data(), conv_.data(), pages_.data()}; }
    Status clear(std::byte* begin, int64_t bytes) override {
        return fill_device(begin, 0, bytes, stream_.get());
    }
    // No step is in flight while a sequence is admitted, so a stream of its own is in order.
    Status finish_clearing() override { return stream_.synchronize(); }

  private:
    DeviceBuffer recurrent_, conv_, pages_;
    DeviceStream stream_;
};

}  // namespace

Result<std::unique_ptr<StateMemory>> make_cuda_state_memory(const StateShape& shape) {
    const StatePoolBytes bytes = StateStore::pool_bytes(shape);
    K3POD_ASSIGN(DeviceStream stream, DeviceStream::create());
    K3POD_ASSIGN(DeviceBuffer recurrent, DeviceBuffer::create(bytes.recurrent));
    K3POD_ASSIGN(DeviceBuffer conv, DeviceBuffer::create(bytes.conv));
    K3POD_ASSIGN(DeviceBuffer pages, DeviceBuffer::create(bytes.pages));
    return std::unique_ptr<StateMemory>(std::make_unique<CudaMemory>(
        std::move(recurrent), std::move(conv), std::move(pages), std::move(stream)));
}

}  // namespace k3pod

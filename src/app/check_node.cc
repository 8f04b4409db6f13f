#include "check_node.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "k3pod/device/cuda.h"
#include "k3pod/fabric/check.h"
#include "k3pod/fabric/facts.h"
#include "k3pod/transport/transport.h"

namespace k3pod {
namespace {

constexpr int64_t kCopyBytes = 256 << 20;
constexpr auto kWarmUp = std::chrono::seconds(1);

// Copies within the GPU's memory on a thread of its own. A GPU that cannot is for other checks.
class BusyGpu {
  public:
    BusyGpu() : thread_([this] { run(); }) { std::this_thread::sleep_for(kWarmUp); }
    BusyGpu(const BusyGpu&) = delete;
    BusyGpu& operator=(const BusyGpu&) = delete;
    ~BusyGpu() {
        stop_ = true;
        thread_.join();
    }

  private:
    void run() {
        if (!use_cuda_device(0)) return;
        const auto stream = DeviceStream::create();
        const auto from = DeviceBuffer::create(kCopyBytes), to = DeviceBuffer::create(kCopyBytes);
        if (!stream || !from || !to) return;
        while (!stop_) {
            const Status copied =
                copy_on_device(to->data(), from->data(), kCopyBytes, stream->get());
            if (!copied || !stream->synchronize()) return;
        }
    }

    std::atomic<bool> stop_{false};
    std::thread thread_;  // Last: it uses what is above.
};

}  // namespace

std::vector<CheckLine> check_this_machine(const PodConfig& pod, const std::string& node,
                                          int64_t taken_bytes, GpuLoad load) {
    const NodeNeeds needs = needs_of(pod, node, taken_bytes);
    std::optional<BusyGpu> busy;
    if (needs.needs_gpu && load == GpuLoad::kBusy && num_cuda_devices() > 0) busy.emplace();
    const NodeFacts facts = gather_facts(
        *this_system(),
        {.peers = needs.peers, .ucx_version = ucx_version(), .wants_gpus = needs.needs_gpu});
    return check_facts(facts, needs);
}

}  // namespace k3pod

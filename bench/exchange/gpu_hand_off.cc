#include "bench/exchange/gpu_hand_off.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "bench/exchange/bare_flag.h"
#include "bench/exchange/plan.h"
#include "bench/support/cores.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/hand_off.h"
#include "k3pod/kernels/hand_off.h"

namespace k3pod::bench {
namespace {

constexpr int kTopK = 16;
constexpr Nanoseconds kLimit = std::chrono::seconds(2);

// Replays a graph of kGpuExchanges and shares its time among them. before_step() runs in front of
// each launch, after_step() when the GPU is done.
Result<std::vector<Percentiles>> time_steps(const GpuPlan& plan, const DeviceGraph& graph,
                                            const DeviceStream& stream,
                                            const std::function<void()>& before_step,
                                            const std::function<Status()>& after_step) {
    K3POD_ASSIGN(const DeviceEvent begin, DeviceEvent::create());
    K3POD_ASSIGN(const DeviceEvent end, DeviceEvent::create());
    std::vector<Percentiles> runs;
    for (int run = 0; run < plan.num_runs; ++run) {
        std::vector<double> samples;
        for (int step = -plan.steps / 4; step < plan.steps; ++step) {
            before_step();
            K3POD_TRY(begin.record(stream.get()));
            K3POD_TRY(graph.launch(stream.get()));
            K3POD_TRY(end.record(stream.get()));
            K3POD_TRY(stream.synchronize());
            K3POD_TRY(after_step());
            K3POD_ASSIGN(const double took, end.microseconds_since(begin));
            if (step >= 0) samples.push_back(took / kGpuExchanges);
        }
        runs.push_back(percentiles_of(samples));
    }
    return runs;
}

// A holder without experts: takes the row in, gives its own row out.
class Holder {
  public:
    Holder(HandOff& hand_off, int part, const std::atomic<int>& num_begun)
        : thread_([&hand_off, part, &num_begun, this] { serve(hand_off, part, num_begun); }) {}
    ~Holder() { stop_ = true; }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

    int num_steps() const { return num_steps_.load(std::memory_order_acquire); }

  private:
    void serve(HandOff& hand_off, int part, const std::atomic<int>& num_begun) {
        pin_to_core(part + 1);
        const SteadyClock clock;
        std::vector<Bf16> row(kLatent, to_bf16(0.5f));
        while (!stop_) {
            if (num_begun.load(std::memory_order_acquire) == num_steps()) continue;
            for (int i = 0; i < kGpuExchanges; ++i) {
                const auto request = hand_off.wait_request(i, clock.now() + kLimit);
                if (!request.is_ok()) return hand_off.abort();
                std::memcpy(row.data(), request->latents.data(), kRowBytes);
                std::memcpy(hand_off.part_bf16(*request, part).data(), row.data(), kRowBytes);
                hand_off.complete(*request, part, PartFormat::kBf16);
            }
            num_steps_.fetch_add(1, std::memory_order_release);
        }
    }

    std::atomic<bool> stop_{false};
    std::atomic<int> num_steps_{0};
    std::jthread thread_;
};

struct HandOffMemory {
    PinnedBuffer shared;
    DeviceBuffer state, latents, experts, weights, out;
};

Result<HandOffMemory> allocate(const HandOffShape& shape) {
    HandOffMemory memory;
    K3POD_ASSIGN(memory.shared, PinnedBuffer::create(hand_off_layout(shape).size_bytes));
    K3POD_ASSIGN(memory.state, DeviceBuffer::create(kernels::hand_off_state_bytes()));
    K3POD_ASSIGN(memory.latents, DeviceBuffer::create(kRowBytes));
    K3POD_ASSIGN(memory.experts, DeviceBuffer::create(kTopK * int64_t{sizeof(uint16_t)}));
    K3POD_ASSIGN(memory.weights, DeviceBuffer::create(kTopK * int64_t{sizeof(float)}));
    K3POD_ASSIGN(memory.out, DeviceBuffer::create(kLatent * int64_t{sizeof(float)}));
    for (const DeviceBuffer* buffer :
         {&memory.state, &memory.latents, &memory.experts, &memory.weights}) {
        K3POD_TRY(fill_device(buffer->data(), 0, buffer->size_bytes()));
    }
    return memory;
}

Status record_step(const HandOffShape& shape, const HandOffMemory& memory, CudaStream stream) {
    const kernels::HandOffLink link{
        .shape = shape, .shared = memory.shared.data(), .state = memory.state.data()};
    K3POD_TRY(kernels::hand_off_begin(link, stream));
    for (int32_t i = 0; i < kGpuExchanges; ++i) {
        K3POD_TRY(kernels::hand_off_dispatch({.link = link,
                                              .exchange_idx = i,
                                              .rows = 1,
                                              .latents_bf16 = memory.latents.as<Bf16>(),
                                              .experts = memory.experts.as<uint16_t>(),
                                              .weights = memory.weights.as<float>()},
                                             stream));
        K3POD_TRY(kernels::hand_off_combine(
            {.link = link, .exchange_idx = i, .rows = 1, .out = memory.out.as<float>()}, stream));
    }
    return Status::ok();
}

// The host's end of bare flags: one thread that copies rows and raises the other flag.
void answer_bare_flags(const BareFlagArgs& args, std::byte* reply_row,
                       const std::atomic<bool>& stop) {
    pin_to_core(1);
    const std::atomic_ref request(*args.request);
    const std::atomic_ref reply(*const_cast<uint64_t*>(args.reply));
    std::vector<std::byte> row(kRowBytes);
    const auto row_bytes = static_cast<size_t>(args.row_bytes);
    for (uint64_t next = 1; !stop;) {
        if (request.load(std::memory_order_acquire) != next) continue;
        std::memcpy(row.data(), args.out, row_bytes);
        std::memcpy(reply_row, row.data(), row_bytes);
        reply.store(next++, std::memory_order_release);
    }
}

}  // namespace

Result<std::vector<Percentiles>> measure_gpu_hand_off(const GpuPlan& plan) {
    const HandOffShape shape{.max_rows = 1,
                             .latent = kLatent,
                             .top_k = kTopK,
                             .num_exchanges = kGpuExchanges,
                             .num_parts = plan.num_holders};
    K3POD_TRY(use_cuda_device(0));
    pin_to_core(0);
    const SteadyClock clock;
    K3POD_ASSIGN(const HandOffMemory memory, allocate(shape));
    const std::span<std::byte> shared(memory.shared.data(),
                                      static_cast<size_t>(memory.shared.size_bytes()));
    K3POD_ASSIGN(const auto hand_off, HandOff::create(shape, shared, clock));
    K3POD_ASSIGN(const DeviceStream stream, DeviceStream::create());
    K3POD_ASSIGN(const DeviceGraph graph, DeviceGraph::capture(stream.get(), [&](CudaStream s) {
                     return record_step(shape, memory, s);
                 }));
    std::atomic<int> num_begun = 0;
    std::vector<std::unique_ptr<Holder>> holders;
    for (int part = 0; part < plan.num_holders; ++part) {
        holders.push_back(std::make_unique<Holder>(*hand_off, part, num_begun));
    }
    return time_steps(
        plan, graph, stream,
        [&] {
            hand_off->begin_step(kLimit);
            num_begun.fetch_add(1, std::memory_order_release);
        },
        [&]() -> Status {
            K3POD_TRY(hand_off->end_step());
            for (const auto& holder : holders) {
                while (holder->num_steps() < num_begun) {
                }
            }
            return Status::ok();
        });
}

Result<std::vector<Percentiles>> measure_bare_flag(const GpuPlan& plan, int row_bytes) {
    K3POD_TRY(use_cuda_device(0));
    pin_to_core(0);
    K3POD_ASSIGN(const PinnedBuffer request, PinnedBuffer::create(sizeof(uint64_t)));
    K3POD_ASSIGN(const PinnedBuffer reply, PinnedBuffer::create(sizeof(uint64_t)));
    K3POD_ASSIGN(const PinnedBuffer out, PinnedBuffer::create(kRowBytes));
    K3POD_ASSIGN(const PinnedBuffer in, PinnedBuffer::create(kRowBytes));
    K3POD_ASSIGN(const DeviceBuffer from, DeviceBuffer::create(kRowBytes));
    K3POD_ASSIGN(const DeviceBuffer to, DeviceBuffer::create(kRowBytes));
    K3POD_ASSIGN(const DeviceBuffer number, DeviceBuffer::create(sizeof(uint64_t)));
    const BareFlagArgs args{.request = request.as<uint64_t>(),
                            .reply = reply.as<uint64_t>(),
                            .row_bytes = row_bytes,
                            .from = from.data(),
                            .out = out.data(),
                            .in = in.data(),
                            .to = to.data(),
                            .number = number.as<uint64_t>()};
    K3POD_ASSIGN(const DeviceStream stream, DeviceStream::create());
    K3POD_TRY(fill_device(number.data(), 0, number.size_bytes(), stream.get()));
    K3POD_TRY(fill_device(from.data(), 0, from.size_bytes(), stream.get()));
    K3POD_TRY(stream.synchronize());
    K3POD_ASSIGN(const DeviceGraph graph,
                 DeviceGraph::capture(stream.get(), [&](CudaStream s) -> Status {
                     for (int i = 0; i < kGpuExchanges; ++i) K3POD_TRY(bare_flag_exchange(args, s));
                     return Status::ok();
                 }));
    std::atomic<bool> stop = false;
    std::jthread host([&] { answer_bare_flags(args, in.data(), stop); });
    auto runs = time_steps(
        plan, graph, stream, [] {},
        [&] {
            const uint64_t asked = std::atomic_ref(*args.request).load();
            if (std::atomic_ref(*reply.as<uint64_t>()).load() == asked) return Status::ok();
            return deadline_exceeded("a bare flag was not answered within two seconds");
        });
    stop = true;
    return runs;
}

}  // namespace k3pod::bench

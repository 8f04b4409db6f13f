#include "k3pod/device/hand_off.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>

#include "k3pod/base/check.h"

namespace k3pod {
namespace {

constexpr int64_t kLine = 128;
constexpr int64_t kWord = sizeof(uint64_t);

constexpr int64_t round_up(int64_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
}

Status check_shape(const HandOffShape& shape) {
    const auto check = [](const char* name, int64_t value, int64_t limit) {
        if (value >= 1 && value <= limit) return Status::ok();
        return invalid_argument(
            fmt::format("hand-off: {} is {}, it must be in [1, {}]", name, value, limit));
    };
    constexpr int32_t kAny = 1 << 24;
    K3POD_TRY(check("max_rows", shape.max_rows, UINT16_MAX));
    K3POD_TRY(check("latent", shape.latent, kAny));
    K3POD_TRY(check("top_k", shape.top_k, kAny));
    K3POD_TRY(check("num_exchanges", shape.num_exchanges, kAny));
    return check("num_parts", shape.num_parts, kMaxHandOffParts);
}

std::atomic_ref<uint64_t> word_at(std::byte* memory, int64_t offset) {
    return std::atomic_ref(*reinterpret_cast<uint64_t*>(memory + offset));
}

template <class T>
T* array_at(std::byte* memory, int64_t offset) {
    return reinterpret_cast<T*>(memory + offset);
}

// Polls that look at nothing but the word, between two looks at everything else.
constexpr int kPollsPerLook = 64;
// A thread that has waited for longer shares its core.
constexpr Nanoseconds kYieldAfter = std::chrono::microseconds(100);

}  // namespace

HandOffLayout hand_off_layout(const HandOffShape& shape) {
    HandOffLayout layout;
    int64_t end = 0;
    const auto place = [&end](int64_t bytes) {
        const int64_t at = end;
        end += round_up(bytes);
        return at;
    };
    const int64_t rows = shape.max_rows;
    layout.replies = place(kLine);
    layout.abort = layout.replies + kMaxHandOffParts * kWord;
    layout.step_base = place(kLine);
    layout.limit_ns = layout.step_base + kWord;
    layout.request = place(kLine);
    layout.outcome = place(kLine);
    layout.latents = place(rows * shape.latent * int64_t{sizeof(Bf16)});
    layout.experts = place(rows * shape.top_k * int64_t{sizeof(uint16_t)});
    layout.weights = place(rows * shape.top_k * int64_t{sizeof(float)});
    layout.part_bytes = round_up(rows * shape.latent * int64_t{sizeof(float)});
    layout.parts = place(layout.part_bytes * shape.num_parts);
    layout.size_bytes = end;
    return layout;
}

Result<std::unique_ptr<HandOff>> HandOff::create(const HandOffShape& shape,
                                                 std::span<std::byte> memory, const Clock& clock) {
    K3POD_TRY(check_shape(shape));
    const int64_t needed = hand_off_layout(shape).size_bytes;
    if (std::ssize(memory) < needed || reinterpret_cast<uintptr_t>(memory.data()) % kLine != 0) {
        return invalid_argument(
            fmt::format("hand-off: the shared memory has {} bytes at {}, it must have {} aligned "
                        "to {}",
                        memory.size(), static_cast<const void*>(memory.data()), needed, kLine));
    }
    std::fill_n(memory.begin(), needed, std::byte{0});
    return std::unique_ptr<HandOff>(new HandOff(shape, memory.data(), clock));
}

HandOff::HandOff(const HandOffShape& shape, std::byte* memory, const Clock& clock)
    : shape_(shape), layout_(hand_off_layout(shape)), memory_(memory), clock_(clock) {}

void HandOff::begin_step(Nanoseconds gpu_limit) {
    const int64_t limit_ns = std::max<int64_t>(gpu_limit.count(), 1);
    step_base_ += static_cast<uint64_t>(shape_.num_exchanges);
    word_at(memory_, layout_.abort).store(0, std::memory_order_relaxed);
    word_at(memory_, layout_.outcome).store(0, std::memory_order_relaxed);
    word_at(memory_, layout_.limit_ns)
        .store(static_cast<uint64_t>(limit_ns), std::memory_order_relaxed);
    word_at(memory_, layout_.step_base).store(step_base_, std::memory_order_release);
}

Result<HandOffRequest> HandOff::wait_request(int32_t exchange_idx, TimePoint deadline) const {
    K3POD_CHECK(exchange_idx >= 0 && exchange_idx < shape_.num_exchanges,
                "an exchange is one of the step's");
    const uint64_t sequence = step_base_ + static_cast<uint64_t>(exchange_idx) + 1;
    const auto request = word_at(memory_, layout_.request);
    const TimePoint start = clock_.now();
    while (true) {
        for (int i = 0; i < kPollsPerLook; ++i) {
            const uint64_t word = request.load(std::memory_order_acquire);
            if (word >> 16 != sequence) continue;
            const auto rows = static_cast<int32_t>(word & 0xffff);
            const auto values = static_cast<size_t>(int64_t{rows} * shape_.latent);
            const auto picks = static_cast<size_t>(int64_t{rows} * shape_.top_k);
            return HandOffRequest{
                .exchange_idx = exchange_idx,
                .sequence = sequence,
                .rows = rows,
                .latents = {array_at<const Bf16>(memory_, layout_.latents), values},
                .experts = {array_at<const uint16_t>(memory_, layout_.experts), picks},
                .weights = {array_at<const float>(memory_, layout_.weights), picks}};
        }
        if (word_at(memory_, layout_.abort).load(std::memory_order_relaxed) != 0) {
            return cancelled(fmt::format("the step was given up before exchange {} of {}",
                                         exchange_idx, shape_.num_exchanges));
        }
        K3POD_TRY(end_step());  // What the GPU gave up, it does not publish any more.
        const TimePoint now = clock_.now();
        if (now >= deadline) {
            return deadline_exceeded(
                fmt::format("the GPU did not reach exchange {} of {} of the step within {:.3f} s; "
                            "see whether it hangs (nvidia-smi, dmesg)",
                            exchange_idx, shape_.num_exchanges, to_seconds(now - start)));
        }
        if (now - start > kYieldAfter) sched_yield();
    }
}

std::span<float> HandOff::part_f32(const HandOffRequest& request, int32_t part) {
    K3POD_CHECK(part >= 0 && part < shape_.num_parts, "a part is one of the shape's");
    return {array_at<float>(memory_, layout_.parts + part * layout_.part_bytes),
            request.latents.size()};
}

std::span<Bf16> HandOff::part_bf16(const HandOffRequest& request, int32_t part) {
    K3POD_CHECK(part >= 0 && part < shape_.num_parts, "a part is one of the shape's");
    return {array_at<Bf16>(memory_, layout_.parts + part * layout_.part_bytes),
            request.latents.size()};
}

void HandOff::complete(const HandOffRequest& request, int32_t part, PartFormat format) {
    K3POD_CHECK(part >= 0 && part < shape_.num_parts, "a part is one of the shape's");
    word_at(memory_, layout_.replies + part * kWord)
        .store(HandOffWord::reply(request.sequence, format), std::memory_order_release);
}

void HandOff::abort() {
    word_at(memory_, layout_.abort).store(1, std::memory_order_release);
}

Status HandOff::end_step() const {
    const uint64_t outcome = word_at(memory_, layout_.outcome).load(std::memory_order_acquire);
    if (outcome == 0) return Status::ok();
    const uint64_t exchange = (outcome >> 8) - step_base_ - 1;
    const uint64_t part = outcome >> 2 & 63;
    const std::string where = fmt::format("exchange {} of {} without the answer of part {} of {}",
                                          exchange, shape_.num_exchanges, part, shape_.num_parts);
    switch (static_cast<HandOffLoss>(outcome & 3)) {
        case HandOffLoss::kAborted:
            return cancelled(fmt::format("the step was given up in {}", where));
        case HandOffLoss::kTimedOut:
            break;
    }
    const uint64_t limit_ns = word_at(memory_, layout_.limit_ns).load(std::memory_order_relaxed);
    return deadline_exceeded(
        fmt::format("the GPU gave up {} after {:.3f} s: the host did not "
                    "answer",
                    where, static_cast<double>(limit_ns) * 1e-9));
}

}  // namespace k3pod

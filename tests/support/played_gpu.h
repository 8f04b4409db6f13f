#pragma once
// The GPU's end of a hand-off, played by a host thread: what the kernels of kernels/hand_off.h do,
// word by word.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "k3pod/device/hand_off.h"

namespace k3pod::testing {

class PlayedGpu {
  public:
    explicit PlayedGpu(const HandOff& hand_off)
        : shape_(hand_off.shape()), layout_(hand_off.layout()), memory_(hand_off.memory()) {}

    void begin() {
        base_ = word(layout_.step_base).load(std::memory_order_acquire);
        limit_ = Nanoseconds(word(layout_.limit_ns).load());
        is_lost_ = false;
    }

    void dispatch(int32_t exchange_idx, int32_t rows, std::span<const Bf16> latents,
                  std::span<const uint16_t> experts, std::span<const float> weights) {
        if (is_lost_) return;
        std::ranges::copy(latents, reinterpret_cast<Bf16*>(memory_ + layout_.latents));
        std::ranges::copy(experts, reinterpret_cast<uint16_t*>(memory_ + layout_.experts));
        std::ranges::copy(weights, reinterpret_cast<float*>(memory_ + layout_.weights));
        word(layout_.request)
            .store(HandOffWord::request(sequence(exchange_idx), rows), std::memory_order_release);
    }

    // [rows, L]; zeros when the exchange was given up.
    std::vector<float> combine(int32_t exchange_idx, int32_t rows) {
        std::vector<float> out(static_cast<size_t>(rows) * static_cast<size_t>(shape_.latent));
        for (int32_t part = 0; part < shape_.num_parts && !is_lost_; ++part) {
            add(part, wait(exchange_idx, part), out);
        }
        if (is_lost_) std::ranges::fill(out, 0.0f);
        return out;
    }

    bool is_lost() const { return is_lost_; }

  private:
    std::atomic_ref<uint64_t> word(int64_t offset) const {
        return std::atomic_ref(*reinterpret_cast<uint64_t*>(memory_ + offset));
    }
    uint64_t sequence(int32_t exchange_idx) const {
        return base_ + static_cast<uint64_t>(exchange_idx) + 1;
    }

    PartFormat wait(int32_t exchange_idx, int32_t part) {
        const auto end = std::chrono::steady_clock::now() + limit_;
        const auto reply = word(layout_.replies + part * 8);
        while (true) {
            const uint64_t value = reply.load(std::memory_order_acquire);
            if (value >> 2 == sequence(exchange_idx)) return static_cast<PartFormat>(value & 3);
            if (word(layout_.abort).load(std::memory_order_acquire) != 0) {
                return lose(exchange_idx, part, HandOffLoss::kAborted);
            }
            if (std::chrono::steady_clock::now() >= end) {
                return lose(exchange_idx, part, HandOffLoss::kTimedOut);
            }
        }
    }

    PartFormat lose(int32_t exchange_idx, int32_t part, HandOffLoss why) {
        is_lost_ = true;
        word(layout_.outcome)
            .store(HandOffWord::outcome(sequence(exchange_idx), part, why),
                   std::memory_order_release);
        return PartFormat::kNone;
    }

    void add(int32_t part, PartFormat format, std::span<float> out) const {
        const std::byte* at = memory_ + layout_.parts + part * layout_.part_bytes;
        for (size_t i = 0; i < out.size(); ++i) {
            if (format == PartFormat::kF32) out[i] += reinterpret_cast<const float*>(at)[i];
            if (format == PartFormat::kBf16) out[i] += to_f32(reinterpret_cast<const Bf16*>(at)[i]);
        }
    }

    const HandOffShape shape_;
    const HandOffLayout layout_;
    std::byte* const memory_;
    uint64_t base_ = 0;
    Nanoseconds limit_{};
    bool is_lost_ = false;
};

}  // namespace k3pod::testing

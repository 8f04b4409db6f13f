#pragma once
// The hand-off: how a step that runs as one CUDA graph passes the rows of a layer to a host thread
// and gets the experts' sums back, without leaving the graph.
//
// An exchange is one layer's hand-off. The GPU writes the rows into memory that both sides see and
// raises the request word; the host reads the rows in place, has them worked on, writes the answer
// in one or more parts (one for each holder, or one sum of all) and raises a reply word for each;
// the GPU adds the parts up in their order. Words carry sequence numbers that only grow, so nothing
// is cleared between exchanges and an old word never answers a new exchange.
//
// Every wait is bounded: on the host by a deadline, on the GPU by the abort word and a clock limit.
// Kernels: kernels/hand_off.h. Nothing here needs CUDA.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "k3pod/base/bf16.h"
#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"

namespace k3pod {

// The reply words and the abort word share a line of 128 bytes, which a warp reads at once.
inline constexpr int32_t kMaxHandOffParts = 15;

struct HandOffShape {
    int32_t max_rows = 0;       // R, at most 65535
    int32_t latent = 0;         // L
    int32_t top_k = 0;          // K
    int32_t num_exchanges = 0;  // of one step: the MoE layers
    int32_t num_parts = 1;      // answers that are summed, at most kMaxHandOffParts
    bool operator==(const HandOffShape&) const = default;
};

// What a part's answer is, carried by its reply word.
enum class PartFormat : uint8_t {
    kNone = 0,  // the part has nothing for these rows
    kF32 = 1,
    kBf16 = 2,
};

// Why the GPU gave an exchange up, carried by the outcome word.
enum class HandOffLoss : uint8_t {
    kAborted = 1,
    kTimedOut = 2,
};

// Words that cross between host and GPU. The sequence number is in the upper bits.
struct HandOffWord {
    static constexpr uint64_t request(uint64_t sequence, int32_t rows) {
        return sequence << 16 | static_cast<uint64_t>(rows);
    }
    static constexpr uint64_t reply(uint64_t sequence, PartFormat format) {
        return sequence << 2 | static_cast<uint64_t>(format);
    }
    static constexpr uint64_t outcome(uint64_t sequence, int32_t part, HandOffLoss why) {
        return sequence << 8 | static_cast<uint64_t>(part) << 2 | static_cast<uint64_t>(why);
    }
};

// Offsets in bytes into the shared memory, and its size: the one place that says so. Lines that one
// side writes and the other polls are 128 bytes apart.
struct HandOffLayout {
    int64_t replies = 0;     // uint64 [kMaxHandOffParts], written by the host
    int64_t abort = 0;       // uint64, in the same line; not 0: give up
    int64_t step_base = 0;   // uint64: the sequence number before the step's first exchange
    int64_t limit_ns = 0;    // uint64: how long a wait on the GPU may last
    int64_t request = 0;     // uint64, written by the GPU
    int64_t outcome = 0;     // uint64, written by the GPU; 0: nothing was given up
    int64_t latents = 0;     // [R, L] bf16
    int64_t experts = 0;     // [R, K] uint16
    int64_t weights = 0;     // [R, K] float
    int64_t parts = 0;       // num_parts times [R, L] float or bf16
    int64_t part_bytes = 0;  // from one part to the next
    int64_t size_bytes = 0;
};
HandOffLayout hand_off_layout(const HandOffShape& shape);

// A layer's rows as the GPU published them, in the shared memory: to be read until the last part is
// complete.
struct HandOffRequest {
    int32_t exchange_idx = 0;  // 0-based within the step
    uint64_t sequence = 0;
    int32_t rows = 0;                   // R of this step
    std::span<const Bf16> latents;      // [R, L]
    std::span<const uint16_t> experts;  // [R, K]
    std::span<const float> weights;     // [R, K]
};

// The host's end. begin_step() and end_step() are the step thread's; the rest may be called by one
// thread for each part, each with a part of its own.
class HandOff {
  public:
    // `memory` is borrowed: hand_off_layout(shape).size_bytes bytes aligned to 128 that host and
    // GPU both see (pinned), or any memory where a test plays the GPU. kInvalidArgument names the
    // value that the shape may not have.
    static Result<std::unique_ptr<HandOff>> create(const HandOffShape& shape,
                                                   std::span<std::byte> memory, const Clock& clock);

    // Before the step's graph is launched, with none in flight. A wait on the GPU lasts at most
    // `gpu_limit`: longer than any deadline of the host, which is to be the first to give up.
    void begin_step(Nanoseconds gpu_limit);

    // Spins until the GPU has published exchange `exchange_idx` of the step. kDeadlineExceeded
    // names the exchange; kCancelled after abort().
    Result<HandOffRequest> wait_request(int32_t exchange_idx, TimePoint deadline) const;

    // Where the answer of a part goes, [R, L] as the request says. Written before complete().
    std::span<float> part_f32(const HandOffRequest& request, int32_t part);
    std::span<Bf16> part_bf16(const HandOffRequest& request, int32_t part);
    // The part's answer is written. Each part of each exchange exactly once.
    void complete(const HandOffRequest& request, int32_t part, PartFormat format);

    // The step cannot be completed: waits of both sides end at once, here and in what is left of
    // the step. Any thread, any number of times.
    void abort();

    // After the step's graph has run. Ok when every exchange was completed; else kCancelled (after
    // abort()) or kDeadlineExceeded, naming the first exchange and the part that the GPU gave up.
    // The step's results are then worthless; the next begin_step() starts afresh.
    Status end_step() const;

    const HandOffShape& shape() const { return shape_; }
    const HandOffLayout& layout() const { return layout_; }
    std::byte* memory() const { return memory_; }

  private:
    HandOff(const HandOffShape& shape, std::byte* memory, const Clock& clock);

    const HandOffShape shape_;
    const HandOffLayout layout_;
    std::byte* const memory_;
    const Clock& clock_;
    uint64_t step_base_ = 0;
};

}  // namespace k3pod

#pragma once
// Per-sequence state on the station: one slot of KDA state and a list of MLA pages per sequence,
// all allocated at start. Not thread-safe: the step thread owns it; num_* are safe from any thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/matrix.h"

namespace k3pod {

inline constexpr int32_t kPageTokens = 64;

struct StateShape {
    int32_t num_kda_layers = 0;
    int32_t kda_heads = 0,
            kda_head_dim = 0;  // recurrent state per layer: [heads, v=128, k=128] fp32
    int32_t conv_kernel = 0;   // window per layer: 3 (q,k,v) x (kernel-1) x P fp32, oldest first
    int32_t num_mla_layers = 0;
    int32_t mla_cache_width = 0;  // 576 bf16 per token per layer: [512 latent | 64 shared key]
    int32_t num_slots = 0;        // sequences
    int32_t num_pages = 0;        // of kPageTokens tokens
    bool operator==(const StateShape&) const = default;
};

// What one sequence owns. Returned by StateStore::acquire, given back by release.
struct SequenceState {
    int32_t slot = -1;
    std::vector<int32_t> pages;
};

// Where the three pools of a store begin, as the back end addresses them.
struct StatePools {
    std::byte* recurrent = nullptr;  // [slots, KDA layers, heads, 128(v), 128(k)] fp32
    std::byte* conv = nullptr;       // [slots, KDA layers, 3, kernel-1, P] fp32
    std::byte* pages = nullptr;      // [pages, MLA layers, kPageTokens, mla_cache_width] bf16
};

// Bytes of one pool.
struct StatePoolBytes {
    int64_t recurrent = 0, conv = 0, pages = 0;
};

// The memory behind a store: that of the host, or of a GPU.
class StateMemory {
  public:
    virtual ~StateMemory() = default;
    virtual StatePools pools() = 0;
    // Makes [begin, begin + bytes) of a pool zero, at the latest when finish_clearing() returns.
    virtual Status clear(std::byte* begin, int64_t bytes) = 0;
    virtual Status finish_clearing() = 0;
};

// State in the memory of the calling thread's GPU (device/cuda.h). kResourceExhausted says how much
// is missing.
Result<std::unique_ptr<StateMemory>> make_cuda_state_memory(const StateShape& shape);

class StateStore {
  public:
    // Allocates host memory and touches everything, so that a machine too small for the plan fails
    // here and not in a request. Aborts when memory is exhausted.
    explicit StateStore(const StateShape& shape);
    // Books memory that a back end made for this shape. Its kernels address the pools themselves:
    // recurrent(), conv_window() and page() must not be called.
    StateStore(const StateShape& shape, std::unique_ptr<StateMemory> memory);

    // Bytes that a store of this shape takes.
    static int64_t bytes(const StateShape& shape);
    static StatePoolBytes pool_bytes(const StateShape& shape);

    // A zeroed slot and pages for max_tokens (>= 0) tokens, or kResourceExhausted (naming which of
    // the two ran out) with nothing taken. Page contents are cleared too, so nothing of an earlier
    // sequence can be read. Costs one pass over the memory handed out. kInternal when a GPU fails.
    Result<SequenceState> acquire(int32_t max_tokens);
    // Takes back what acquire gave and leaves `state` empty. Aborts when it is not in use: a slot
    // released twice would be handed to two sequences.
    void release(SequenceState&& state);

    int32_t num_free_slots() const { return free_slot_count_.load(std::memory_order_relaxed); }
    int32_t num_free_pages() const { return free_page_count_.load(std::memory_order_relaxed); }
    const StateShape& shape() const { return shape_; }
    static int32_t pages_for(int32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

    StatePools pools() { return memory_->pools(); }

    // In host memory. kda_layer and mla_layer count only layers of their kind, from 0.
    std::span<float> recurrent(int32_t kda_layer, int32_t slot);    // [heads, 128(v), 128(k)]
    std::span<float> conv_window(int32_t kda_layer, int32_t slot);  // [3, kernel-1, P]
    std::span<Bf16> page(int32_t mla_layer, int32_t page);  // [kPageTokens, mla_cache_width]

  private:
    Status clear(const SequenceState& state);

    StateShape shape_;
    // One slot's layers lie side by side, and one page's, so that clearing either is a single pass.
    std::unique_ptr<StateMemory> memory_;
    std::vector<int32_t> free_slots_, free_pages_;  // taken from the back
    std::vector<bool> slot_in_use_, page_in_use_;
    std::atomic<int32_t> free_slot_count_{0}, free_page_count_{0};
};

}  // namespace k3pod

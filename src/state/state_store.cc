#include "k3pod/state/state_store.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <utility>

#include "k3pod/base/check.h"

namespace k3pod {
namespace {

// Sizes of the parts of a store, in elements of their type.
int64_t recurrent_elements(const StateShape& s) {
    return int64_t{s.kda_heads} * s.kda_head_dim * s.kda_head_dim;
}

int64_t conv_elements(const StateShape& s) {
    return int64_t{3} * (s.conv_kernel - 1) * s.kda_heads * s.kda_head_dim;
}

int64_t page_elements(const StateShape& s) {
    return int64_t{kPageTokens} * s.mla_cache_width;
}

// Bytes of one slot or page over all layers of its kind.
int64_t slot_recurrent_bytes(const StateShape& s) {
    return s.num_kda_layers * recurrent_elements(s) * int64_t{sizeof(float)};
}

int64_t slot_conv_bytes(const StateShape& s) {
    return s.num_kda_layers * conv_elements(s) * int64_t{sizeof(float)};
}

int64_t page_bytes(const StateShape& s) {
    return s.num_mla_layers * page_elements(s) * int64_t{sizeof(Bf16)};
}

class HostMemory final : public StateMemory {
  public:
    explicit HostMemory(const StatePoolBytes& bytes)
        : recurrent_(HostBuffer::on_huge_pages(bytes.recurrent)),
          conv_(HostBuffer::on_huge_pages(bytes.conv)),
          pages_(HostBuffer::on_huge_pages(bytes.pages)) {
        for (HostBuffer* buffer : {&recurrent_, &conv_, &pages_})
            zero(buffer->data(), buffer->size_bytes());
    }

    StatePools pools() override { return {recurrent_.data(), conv_.data(), pages_.data()}; }
    Status clear(std::byte* begin, int64_t bytes) override {
        zero(begin, bytes);
        return Status::ok();
    }
    Status finish_clearing() override { return Status::ok(); }

  private:
    static void zero(std::byte* begin, int64_t bytes) {
        if (bytes > 0) std::memset(begin, 0, static_cast<size_t>(bytes));
    }

    HostBuffer recurrent_, conv_, pages_;
};

// n-1 .. 0, so that the lowest number is handed out first.
std::vector<int32_t> descending(int32_t n) {
    std::vector<int32_t> v(static_cast<size_t>(n));
    std::iota(v.rbegin(), v.rend(), 0);
    return v;
}

template <class T>
std::span<T> block(std::byte* pool, int64_t index, int64_t elements) {
    return {reinterpret_cast<T*>(pool) + index * elements, static_cast<size_t>(elements)};
}

}  // namespace

int64_t StateStore::bytes(const StateShape& shape) {
    const StatePoolBytes pools = pool_bytes(shape);
    return pools.recurrent + pools.conv + pools.pages;
}

StatePoolBytes StateStore::pool_bytes(const StateShape& shape) {
    return {.recurrent = shape.num_slots * slot_recurrent_bytes(shape),
            .conv = shape.num_slots * slot_conv_bytes(shape),
            .pages = shape.num_pages * page_bytes(shape)};
}

StateStore::StateStore(const StateShape& shape)
    : StateStore(shape, std::make_unique<HostMemory>(pool_bytes(shape))) {}

StateStore::StateStore(const StateShape& shape, std::unique_ptr<StateMemory> memory)
    : shape_(shape),
      memory_(std::move(memory)),
      free_slots_(descending(shape.num_slots)),
      free_pages_(descending(shape.num_pages)),
      slot_in_use_(static_cast<size_t>(shape.num_slots), false),
      page_in_use_(static_cast<size_t>(shape.num_pages), false),
      free_slot_count_(shape.num_slots),
      free_page_count_(shape.num_pages) {}

Result<SequenceState> StateStore::acquire(int32_t max_tokens) {
    K3POD_CHECK(max_tokens >= 0, "a sequence has at least 0 tokens");
    const int32_t needed = pages_for(max_tokens);
    if (free_slots_.empty()) {
        return resource_exhausted(
            fmt::format("state slots: all {} are in use; wait for a sequence to finish or raise "
                        "the number of sequences",
                        shape_.num_slots));
    }
    if (needed > num_free_pages()) {
        return resource_exhausted(fmt::format(
            "state pages: {} tokens need {} pages, {} of {} are free; wait for a sequence to "
            "finish or raise the page pool",
            max_tokens, needed, num_free_pages(), shape_.num_pages));
    }

    SequenceState state{.slot = free_slots_.back(), .pages = {}};
    free_slots_.pop_back();
    slot_in_use_[static_cast<size_t>(state.slot)] = true;
    state.pages.assign(free_pages_.rbegin(), free_pages_.rbegin() + needed);
    free_pages_.resize(free_pages_.size() - static_cast<size_t>(needed));
    for (const int32_t page : state.pages) {
        page_in_use_[static_cast<size_t>(page)] = true;
    }
    free_slot_count_.store(static_cast<int32_t>(free_slots_.size()), std::memory_order_relaxed);
    free_page_count_.store(static_cast<int32_t>(free_pages_.size()), std::memory_order_relaxed);
    if (Status cleared = clear(state); !cleared.is_ok()) {
        release(std::move(state));
        return cleared;
    }
    return state;
}

Status StateStore::clear(const SequenceState& state) {
    const StatePools pools = memory_->pools();
    const auto clear_one = [&](std::byte* pool, int64_t index, int64_t bytes) {
        return memory_->clear(pool + index * bytes, bytes);
    };
    K3POD_TRY(clear_one(pools.recurrent, state.slot, slot_recurrent_bytes(shape_)));
    K3POD_TRY(clear_one(pools.conv, state.slot, slot_conv_bytes(shape_)));
    for (const int32_t page : state.pages)
        K3POD_TRY(clear_one(pools.pages, page, page_bytes(shape_)));
    return memory_->finish_clearing();
}

void StateStore::release(SequenceState&& state) {
    K3POD_CHECK(state.slot >= 0 && state.slot < shape_.num_slots, "released state owns no slot");
    K3POD_CHECK(slot_in_use_[static_cast<size_t>(state.slot)], "slot released twice");
    slot_in_use_[static_cast<size_t>(state.slot)] = false;
    free_slots_.push_back(state.slot);
    for (const int32_t page : state.pages) {
        K3POD_CHECK(page >= 0 && page < shape_.num_pages, "released page is not of this store");
        K3POD_CHECK(page_in_use_[static_cast<size_t>(page)], "page released twice");
        page_in_use_[static_cast<size_t>(page)] = false;
        free_pages_.push_back(page);
    }
    state = {};
    free_slot_count_.store(static_cast<int32_t>(free_slots_.size()), std::memory_order_relaxed);
    free_page_count_.store(static_cast<int32_t>(free_pages_.size()), std::memory_order_relaxed);
}

std::span<float> StateStore::recurrent(int32_t kda_layer, int32_t slot) {
    return block<float>(pools().recurrent, int64_t{slot} * shape_.num_kda_layers + kda_layer,
                        recurrent_elements(shape_));
}

std::span<float> StateStore::conv_window(int32_t kda_layer, int32_t slot) {
    return block<float>(pools().conv, int64_t{slot} * shape_.num_kda_layers + kda_layer,
                        conv_elements(shape_));
}

std::span<Bf16> StateStore::page(int32_t mla_layer, int32_t page) {
    return block<Bf16>(pools().pages, int64_t{page} * shape_.num_mla_layers + mla_layer,
                       page_elements(shape_));
}

}  // namespace k3pod

// Counts what the forward pass allocates: nothing, once the model is made.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "k3pod/model/model.h"
#include "tests/support/synthetic_model.h"

namespace {
std::atomic<int64_t> num_allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
    num_allocations.fetch_add(1, std::memory_order_relaxed);
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (void* p = std::aligned_alloc(alignment, rounded)) return p;
    throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) {
    return counted(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t a) {
    return counted(bytes, static_cast<std::size_t>(a));
}
// Inlined where operator new is not, they would look like a mistake to g++.
[[gnu::noinline]] void operator delete(void* p) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}

namespace k3pod {
namespace {

TEST(ModelMemory, a_step_allocates_nothing) {
    const ModelConfig config = testing::synthetic_config();
    const StationWeights weights = testing::synthetic_weights(config, 1);
    StateStore store(state_shape(config, 2, 4));
    const std::unique_ptr<Model> model =
        std::move(Model::create(config, weights, store, 64)).value();
    testing::FakeExperts experts(config.num_experts);
    const SequenceState a = std::move(store.acquire(100)).value();
    const SequenceState b = std::move(store.acquire(100)).value();
    const std::vector<int32_t> ids(40, 5);
    const SequenceChunk chunks[] = {{&a, 0, std::span(ids).first(1), SequenceChunk::Logits::kLast},
                                    {&b, 0, ids, SequenceChunk::Logits::kAll}};
    std::vector<float> logits(41 * static_cast<size_t>(config.vocab));

    const int64_t before = num_allocations.load();
    const Status status = model->forward({.step = 1, .chunks = chunks}, experts, logits);
    const int64_t after = num_allocations.load();

    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(after - before, 0);
    EXPECT_GT(before, 0);
}

}  // namespace
}  // namespace k3pod

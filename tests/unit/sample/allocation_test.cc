// Counts allocations by replacing the program's operator new.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "k3pod/sample/sampler.h"

namespace {
std::atomic<int64_t> num_allocations{0};
}

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
    ++num_allocations;
    return std::malloc(bytes);
}
void* operator new(size_t bytes) {
    if (void* memory = operator new(bytes, std::nothrow)) return memory;
    throw std::bad_alloc();
}
// Inlined where operator new is not, they would look like a mistake to g++.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

namespace k3pod {
namespace {

TEST(Sampler, does_not_allocate_while_drawing) {
    constexpr int32_t kVocab = 4096;
    std::vector<float> logits(kVocab);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) * 0.1f;
    SamplingParams params;
    params.top_p = 0.95f;
    params.top_k = 500;
    params.repetition_penalty = 1.2f;
    params.logit_bias = {{3, 1.0f}};
    const std::vector<int32_t> prompt = {1, 2, 3}, banned = {4};
    SamplerWorkspace workspace(kVocab);
    Sampler sampler(params, prompt, workspace);

    const int64_t before = num_allocations;
    int64_t sum = 0;
    for (int64_t position = 0; position < 100; ++position) {
        sum += sampler.draw(logits, position, banned).value().id;
    }
    EXPECT_EQ(num_allocations - before, 0);
    EXPECT_GT(sum, 0);
}

}  // namespace
}  // namespace k3pod

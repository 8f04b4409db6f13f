#include "bench/exchange/mailbox.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include "bench/support/cores.h"

namespace k3pod::bench {
namespace {

// A row is written over one that was read some exchanges ago and not just now, as in a queue.
constexpr uint64_t kBoxes = 16;
constexpr uint64_t kEnd = ~uint64_t{0};

struct Box {
    alignas(128) std::atomic<uint64_t> number{0};
    alignas(128) std::array<std::byte, kRowBytes> row{};

    void put(const std::byte* from, uint64_t value) {
        std::memcpy(row.data(), from, kRowBytes);
        number.store(value, std::memory_order_release);
    }
};

struct Pair {
    std::array<Box, kBoxes> requests;
    std::array<Box, kBoxes> replies;
};

void answer(std::vector<std::unique_ptr<Pair>>& pairs) {
    pin_to_core(1);
    std::array<std::byte, kRowBytes> row{};
    std::vector<uint64_t> next(pairs.size(), 1);
    while (true) {
        for (size_t i = 0; i < pairs.size(); ++i) {
            Box& request = pairs[i]->requests[next[i] % kBoxes];
            const uint64_t number = request.number.load(std::memory_order_acquire);
            if (number == kEnd) return;
            if (number != next[i]) continue;
            std::memcpy(row.data(), request.row.data(), kRowBytes);
            pairs[i]->replies[number % kBoxes].put(row.data(), number);
            ++next[i];
        }
    }
}

double exchange(std::vector<std::unique_ptr<Pair>>& pairs, uint64_t number) {
    static std::array<std::byte, kRowBytes> row{};
    const auto start = std::chrono::steady_clock::now();
    for (const auto& pair : pairs) pair->requests[number % kBoxes].put(row.data(), number);
    for (const auto& pair : pairs) {
        const Box& reply = pair->replies[number % kBoxes];
        while (reply.number.load(std::memory_order_acquire) != number) {
        }
        std::memcpy(row.data(), reply.row.data(), kRowBytes);
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count();
}

std::vector<Percentiles> run(const Plan& plan) {
    std::vector<std::unique_ptr<Pair>> pairs;
    for (int i = 0; i < plan.num_servers; ++i) pairs.push_back(std::make_unique<Pair>());
    std::thread server([&] { answer(pairs); });
    pin_to_core(0);
    std::vector<Percentiles> runs;
    std::vector<double> samples(static_cast<size_t>(plan.rounds));
    uint64_t number = 0;
    for (int r = 0; r < plan.num_runs; ++r) {
        for (double& sample : samples) sample = exchange(pairs, ++number);
        runs.push_back(percentiles_of(samples));
    }
    pairs[0]->requests[(number + 1) % kBoxes].number.store(kEnd, std::memory_order_release);
    server.join();
    return runs;
}

}  // namespace

std::vector<Percentiles> measure_mailboxes(const Plan& plan) {
    std::vector<Percentiles> runs;
    std::thread([&] { runs = run(plan); }).join();  // a thread of its own, as it pins itself
    return runs;
}

}  // namespace k3pod::bench

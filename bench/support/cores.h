#pragma once
// Which core a thread runs on, and how far two cores are apart right now.

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace k3pod::bench {

// The calling thread, and those it starts later. A core that does not exist is ignored.
inline void pin_to_core(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// Microseconds for a cache line from one core to the other and back, the best of several tries. On
// a virtual machine it tells whether the host has put the two cores side by side at the moment.
inline double line_round_trip_us(int core, int other_core) {
    constexpr int kRounds = 2000, kTries = 5;
    alignas(128) std::atomic<int> ball{0};
    std::thread partner([&] {
        pin_to_core(other_core);
        for (int i = 0; i < kRounds * kTries; ++i) {
            while (ball.load(std::memory_order_acquire) != 2 * i + 1) {
            }
            ball.store(2 * i + 2, std::memory_order_release);
        }
    });
    double best = 1e9;
    std::thread server([&] {
        pin_to_core(core);
        for (int attempt = 0, i = 0; attempt < kTries; ++attempt) {
            const auto start = std::chrono::steady_clock::now();
            for (int round = 0; round < kRounds; ++round, ++i) {
                ball.store(2 * i + 1, std::memory_order_release);
                while (ball.load(std::memory_order_acquire) != 2 * i + 2) {
                }
            }
            const std::chrono::duration<double, std::micro> took =
                std::chrono::steady_clock::now() - start;
            best = std::min(best, took.count() / kRounds);
        }
    });
    server.join();
    partner.join();
    return best;
}

}  // namespace k3pod::bench

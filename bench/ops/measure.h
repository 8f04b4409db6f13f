#pragma once
// Times a piece of work: the median of many samples, with the spread beside it.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace k3pod::bench {

struct Sample {
    double median_us = 0, p10_us = 0, p90_us = 0;
};

// Runs `work` for about a quarter of a second, in batches long enough for the clock.
template <class F>
Sample measure(F work) {
    using Clock = std::chrono::steady_clock;
    using Micros = std::chrono::duration<double, std::micro>;
    constexpr double kBatchUs = 200;
    constexpr double kTotalUs = 250'000;
    constexpr size_t kFewest = 9;
    const auto time_batch = [&](int64_t runs) {
        const auto start = Clock::now();
        for (int64_t i = 0; i < runs; ++i) work();
        return Micros(Clock::now() - start).count();
    };
    time_batch(1);  // caches, pages, dispatch
    const double once_us = std::max(time_batch(1), 0.01);
    const int64_t runs = std::max<int64_t>(1, static_cast<int64_t>(kBatchUs / once_us));
    std::vector<double> samples;
    for (double total = 0; total < kTotalUs || samples.size() < kFewest;) {
        const double batch = time_batch(runs);
        total += batch;
        samples.push_back(batch / static_cast<double>(runs));
    }
    std::sort(samples.begin(), samples.end());
    const auto at = [&](size_t percent) { return samples[(samples.size() - 1) * percent / 100]; };
    return {at(50), at(10), at(90)};
}

}  // namespace k3pod::bench

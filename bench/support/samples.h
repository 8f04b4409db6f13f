#pragma once
// From many measured times to the few that are printed.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace k3pod::bench {

struct Percentiles {
    double p50 = 0;
    double p99 = 0;
};

// Of at least one sample; reorders them.
inline Percentiles percentiles_of(std::vector<double>& samples) {
    std::sort(samples.begin(), samples.end());
    return {samples[samples.size() / 2], samples[samples.size() * 99 / 100]};
}

// One figure out of several short runs: the best, because what other programs take away only ever
// adds, and how far the others lie above it.
struct BestOfRuns {
    Percentiles best;       // the run with the lowest p50
    double median_p50 = 0;  // of the runs' p50
    double spread = 0;      // (highest p50 - lowest) / lowest
};

inline BestOfRuns best_of(std::vector<Percentiles> runs) {
    std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.p50 < b.p50; });
    const double lowest = runs.front().p50;
    return {runs.front(), runs[runs.size() / 2].p50, (runs.back().p50 - lowest) / lowest};
}

}  // namespace k3pod::bench

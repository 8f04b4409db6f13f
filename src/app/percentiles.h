#pragma once
// From many measured times to the few that are printed.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace k3pod {

struct Percentiles {
    double p50 = 0, p99 = 0, max = 0;
};

// Of at least one sample; reorders them.
inline Percentiles percentiles_of(std::vector<double>& samples) {
    std::sort(samples.begin(), samples.end());
    return {samples[samples.size() / 2], samples[samples.size() * 99 / 100], samples.back()};
}

}  // namespace k3pod

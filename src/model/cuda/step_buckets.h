#pragma once
// Numbers of rows that steps which decode are padded to, one graph each.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace k3pod {

// Above it a step is launched like one with prefill: it is long enough to hide the launches.
inline constexpr int32_t kMaxBucketRows = 64;

// 1, 2, 4, ... up to the limit, and the limit itself, ascending.
inline std::vector<int32_t> step_buckets(int32_t max_rows) {
    const int32_t limit = std::min(max_rows, kMaxBucketRows);
    std::vector<int32_t> buckets;
    for (int32_t rows = 1; rows < limit; rows *= 2) buckets.push_back(rows);
    buckets.push_back(limit);
    return buckets;
}

}  // namespace k3pod

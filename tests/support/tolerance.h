#pragma once
// How far a computed value may lie from the exact one, from the type it was computed in and the
// number of terms summed.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace k3pod::testing {

// Largest relative error of one rounding.
inline constexpr double kF32Rounding = 1.0 / (1 << 24);
inline constexpr double kBf16Rounding = 1.0 / (1 << 8);

// An fp32 sum of n terms whose absolute values add up to `magnitude`. Roundings are independent, so
// the error grows with the root of n; six deviations leave no room for chance.
inline double f32_sum_tolerance(int64_t n, double magnitude) {
    return 6 * std::sqrt(static_cast<double>(n) + 4) * kF32Rounding * magnitude +
           std::numeric_limits<float>::denorm_min();
}

// Output memory is filled with this before an op runs, so that a value left out is seen.
inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

inline std::vector<float> poisoned(int64_t n) {
    return std::vector<float>(static_cast<size_t>(n), kPoison);
}

}  // namespace k3pod::testing

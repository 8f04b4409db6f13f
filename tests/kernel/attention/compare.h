#pragma once
// How far a kernel's result lies from its twin's.

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "k3pod/base/bf16.h"

namespace k3pod::testing {

// Errors allowed, as relative_error() gives them: fp32 sums in another order, and results rounded
// to bf16 once.
inline constexpr double kF32Close = 2e-6;
inline constexpr double kBf16Close = 2.5e-3;

// ||got - want|| / ||want||; infinite when a value is missing or NaN.
inline double relative_error(std::span<const float> got, std::span<const float> want) {
    if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
    double error = 0;
    double size = std::numeric_limits<double>::denorm_min();
    for (size_t i = 0; i < got.size(); ++i) {
        const double difference = double{got[i]} - double{want[i]};
        if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
        error += difference * difference;
        size += double{want[i]} * double{want[i]};
    }
    return std::sqrt(error / size);
}

inline std::vector<float> widened(std::span<const Bf16> values) {
    std::vector<float> wide;
    for (const Bf16 v : values) wide.push_back(to_f32(v));
    return wide;
}

}  // namespace k3pod::testing

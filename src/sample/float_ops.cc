#include "sample/float_ops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace k3pod {
namespace {

constexpr size_t kLanes = 16;

// exp for x <= 0 (Cephes): x = n ln2 + r, exp(r) by a polynomial, 2^n through the exponent field.
// Branch-free, so that loops around it vectorise. exp(0) is exactly 1.
inline float exp_nonpositive(float x) {
    constexpr float kLowest = -87.0f;  // exp(-87) is still a normal number.
    constexpr float kLog2e = 1.44269504f;
    constexpr float kLn2High = 0.693359375f;  // kLn2High * n is exact for |n| < 2^14.
    constexpr float kLn2Low = -2.12194440e-4f;
    constexpr float kRoundToInteger =
        12582912.0f;  // 1.5 * 2^23: the sum's low bits are an integer.

    const float clamped = x > kLowest ? x : kLowest;
    const float shifted = clamped * kLog2e + kRoundToInteger;
    const float n = shifted - kRoundToInteger;
    const float r = clamped - n * kLn2High - n * kLn2Low;
    float p = 1.9875691e-4f;
    p = p * r + 1.3981999e-3f;
    p = p * r + 8.3334519e-3f;
    p = p * r + 4.1665796e-2f;
    p = p * r + 1.6666665e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    const int32_t exponent =
        std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRoundToInteger) + 127;
    const float result = p * std::bit_cast<float>(exponent << 23);
    return x >= kLowest ? result : 0.0f;
}

}  // namespace

bool is_drawable(std::span<const float> values) {
    constexpr float kLargest = std::numeric_limits<float>::max();
    int32_t num_bad = 0;
    for (const float v : values) num_bad += v <= kLargest ? 0 : 1;
    return num_bad == 0;
}

float max_of(std::span<const float> values) {
    std::array<float, kLanes> lanes;
    lanes.fill(-std::numeric_limits<float>::infinity());
    size_t i = 0;
    for (; i + kLanes <= values.size(); i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) {
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
        }
    }
    for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
    return *std::max_element(lanes.begin(), lanes.end());
}

int32_t first_index_of(std::span<const float> values, float value) {
    return static_cast<int32_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

void scaled_exp(std::span<const float> values, float max, float scale, std::span<float> out) {
    const float* in = values.data();
    float* to = out.data();
    for (size_t i = 0; i < values.size(); ++i) to[i] = exp_nonpositive((in[i] - max) * scale);
}

double log_sum_exp(std::span<const float> values, float max) {
    // Lanes are emptied into a double before they grow long, so that small terms are not lost.
    constexpr size_t kBlock = 64 * kLanes;
    double sum = 0;
    size_t i = 0;
    while (i + kLanes <= values.size()) {
        std::array<float, kLanes> lanes{};
        const size_t block_end = std::min(i + kBlock, values.size() - values.size() % kLanes);
        for (; i < block_end; i += kLanes) {
            for (size_t lane = 0; lane < kLanes; ++lane) {
                lanes[lane] += exp_nonpositive(values[i + lane] - max);
            }
        }
        for (const float lane : lanes) sum += lane;
    }
    for (; i < values.size(); ++i) sum += exp_nonpositive(values[i] - max);
    return static_cast<double>(max) + std::log(sum);
}

}  // namespace k3pod

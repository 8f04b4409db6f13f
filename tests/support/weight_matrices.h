#pragma once
// Random matrices in every weight format, and what their bits mean, written plainly in double.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "k3pod/device/matrix.h"
#include "tests/support/random_values.h"

namespace k3pod::testing {

inline constexpr WeightFormat kAllFormats[] = {WeightFormat::kF32, WeightFormat::kBf16,
                                               WeightFormat::kFp8Tile, WeightFormat::kNvfp4,
                                               WeightFormat::kMxfp4};

inline bool is_fp4(WeightFormat format) {
    return format == WeightFormat::kNvfp4 || format == WeightFormat::kMxfp4;
}

// Sign, four exponent bits (bias 7), three of mantissa; exponent 0 is subnormal.
inline double e4m3_value(uint8_t bits) {
    const int exponent = (bits >> 3) & 15;
    const int mantissa = bits & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

inline double e2m1_value(uint8_t nibble) {
    constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return (nibble & 8) != 0 ? -kMagnitudes[nibble & 7] : kMagnitudes[nibble & 7];
}

inline uint8_t random_e4m3(RandomValues& random) {
    for (;;) {
        const auto bits = static_cast<uint8_t>(random.integer(0, 255));
        if ((bits & 0x7f) != 0x7f) return bits;  // not NaN
    }
}

// Every bit pattern that the loader lets through may occur; values are of order one.
inline Matrix random_matrix(WeightFormat format, int32_t rows, int32_t cols, RandomValues& random) {
    Matrix matrix(format, rows, cols);
    const auto data = matrix.mutable_data();
    const auto scales = matrix.mutable_scales();
    const auto put = [](std::span<std::byte> to, size_t i, auto value) {
        std::memcpy(to.data() + i * sizeof(value), &value, sizeof(value));
    };
    const auto elements = static_cast<size_t>(rows) * static_cast<size_t>(cols);
    switch (format) {
        case WeightFormat::kF32:
            for (size_t i = 0; i < elements; ++i) put(data, i, random.normal());
            break;
        case WeightFormat::kBf16:
            for (size_t i = 0; i < elements; ++i) put(data, i, to_bf16(random.normal()));
            break;
        case WeightFormat::kFp8Tile:
            for (size_t i = 0; i < elements; ++i) put(data, i, random_e4m3(random));
            for (size_t i = 0; i < scales.size() / 4; ++i)
                put(scales, i, random.uniform(0.001f, 0.01f));
            break;
        case WeightFormat::kNvfp4:
            for (auto& b : data) b = static_cast<std::byte>(random.integer(0, 255));
            for (size_t i = 0; i < scales.size(); ++i) put(scales, i, random_e4m3(random));
            matrix.set_global_scale(random.uniform(0.001f, 0.01f));
            break;
        case WeightFormat::kMxfp4:
            for (auto& b : data) b = static_cast<std::byte>(random.integer(0, 255));
            for (auto& s : scales) s = static_cast<std::byte>(random.integer(123, 128));
            break;
    }
    return matrix;
}

inline double weight_at(const MatrixView& m, int32_t row, int32_t col) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(m.data);
    const auto* scales = reinterpret_cast<const uint8_t*>(m.scales);
    const int64_t at = int64_t{row} * m.cols + col;
    const auto nibble = [&] {
        return e2m1_value(static_cast<uint8_t>(bytes[at / 2] >> (at % 2 == 0 ? 0 : 4) & 15));
    };
    switch (m.format) {
        case WeightFormat::kF32:
            return reinterpret_cast<const float*>(m.data)[at];
        case WeightFormat::kBf16:
            return to_f32(reinterpret_cast<const Bf16*>(m.data)[at]);
        case WeightFormat::kFp8Tile: {
            const int64_t tiles = (m.cols + 127) / 128;
            const auto* tile_scales = reinterpret_cast<const float*>(m.scales);
            return e4m3_value(bytes[at]) * double{tile_scales[row / 128 * tiles + col / 128]};
        }
        case WeightFormat::kNvfp4:
            return nibble() * e4m3_value(scales[at / 16]) * double{m.global_scale};
        case WeightFormat::kMxfp4:
            return nibble() * std::ldexp(1.0, scales[at / 32] - 127);
    }
    return 0;
}

// [rows, cols]
inline std::vector<double> weight_values(const MatrixView& m) {
    std::vector<double> values;
    for (int32_t r = 0; r < m.rows; ++r) {
        for (int32_t c = 0; c < m.cols; ++c) values.push_back(weight_at(m, r, c));
    }
    return values;
}

}  // namespace k3pod::testing

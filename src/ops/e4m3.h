#pragma once
// E4M3 (no infinities): the scales of NVFP4 blocks.

#include <array>
#include <cstdint>

namespace k3pod::ops {

constexpr float e4m3_to_f32(uint8_t bits) {
    const int exponent = (bits >> 3) & 15;
    const int mantissa = bits & 7;
    float value = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) / 512.0f;  // 2^-9
    for (int e = 1; e < exponent; ++e) value *= 2.0f;
    return (bits & 0x80) != 0 ? -value : value;
}

inline constexpr auto kE4m3ToF32 = [] {
    std::array<float, 256> table{};
    for (size_t i = 0; i < table.size(); ++i) table[i] = e4m3_to_f32(static_cast<uint8_t>(i));
    return table;
}();

}  // namespace k3pod::ops

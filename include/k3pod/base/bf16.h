#pragma once
// bfloat16: the upper half of an fp32. Conversion rounds to nearest even; NaN stays NaN.

#include <bit>
#include <cstdint>

namespace k3pod {

struct Bf16 {
    uint16_t bits;
};
static_assert(sizeof(Bf16) == 2);

constexpr float to_f32(Bf16 v) {
    return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16);
}

constexpr Bf16 to_bf16(float v) {
    const uint32_t u = std::bit_cast<uint32_t>(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
    return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

}  // namespace k3pod

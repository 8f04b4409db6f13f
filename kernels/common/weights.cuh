#pragma once
// Weights of the checkpoint as f16 or bf16, exactly: 16 bytes of a row at a time for the tensor
// cores, one value at a time for everything else.
//
// E4M3 has a conversion to f16 on every GPU from sm_90 on. E2M1 has none on some, so its bits are
// shifted into the fields of a bf16, where they are the value times a power of two, subnormals
// included, and one multiplication with the scale puts that right.

#include <cuda_bf16.h>

#include <cstdint>

#include "k3pod/device/matrix.h"

namespace k3pod::kernels {

__device__ inline uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

// The same power of two in both halves.
constexpr uint32_t bf16x2_exp2(int exponent) {
    return static_cast<uint32_t>(exponent + 127) * 0x00800080u;
}

// Two E4M3 in the low half of `bytes` as f16, exactly.
__device__ inline uint32_t e4m3x2_to_f16x2(uint32_t bytes) {
    uint32_t pair;
    asm("{\n"
        ".reg .b16 low;\n"
        "cvt.u16.u32 low, %1;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "}\n"
        : "=r"(pair)
        : "r"(bytes));
    return pair;
}

// Eight E2M1 times 2^-126 * scale, as the pairs (0, 4), (1, 5), (2, 6), (3, 7): neighbours in the
// two halves of a word need no further moving. The multiplications are pairs of shifts that run
// beside the logic: sign to bit 15, exponent and mantissa to bits 8 to 6.
__device__ inline void widen_e2m1x8(uint32_t nibbles, uint32_t scale, uint32_t (&pairs)[4]) {
    const uint32_t upper = nibbles >> 8;
    const uint32_t spread[4] = {(nibbles & 0x000f000fu) * 0x1040u,
                                (nibbles & 0x00f000f0u) * 0x0104u, (upper & 0x000f000fu) * 0x1040u,
                                (upper & 0x00f000f0u) * 0x0104u};
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = mul_bf16x2(spread[i] & 0x81c081c0u, scale);
}

// FP4 weights reach the tensor cores times 2^-kFp4Shift, so that 2^-126 and any sensible scale fit
// a bf16 on the way: exact for E8M0 scales from 2^-62 to 2^64, and for every E4M3 scale.
inline constexpr int kFp4Shift = 63;
inline constexpr float kFp4Unshift = 9223372036854775808.0f;  // 2^63

// What widen_e2m1x8 multiplies with, for a scale of 2^(e8m0 - 127).
__device__ inline uint32_t e8m0_multiplier(uint32_t e8m0) {
    return (min(e8m0, 254u - kFp4Shift) + kFp4Shift) * 0x00800080u;
}
__device__ inline uint32_t e4m3_multiplier(uint32_t e4m3) {
    const uint32_t bits = ((e4m3 & 0x7fu) << 4) | ((e4m3 & 0x80u) << 8);
    const uint32_t value = mul_bf16x2(bits * 0x00010001u, bf16x2_exp2(120));
    return mul_bf16x2(value, bf16x2_exp2(kFp4Shift));
}

// One value, for shapes that have no fast path.
__device__ inline float e4m3_to_f32(uint32_t bits) {
    const uint32_t moved = ((bits & 0x80u) << 24) | ((bits & 0x7fu) << 20);
    return __uint_as_float(moved) * 1.329227995784916e36f;  // 2^120
}
__device__ inline float e2m1_to_f32(uint32_t bits) {
    const uint32_t moved = ((bits & 8u) << 28) | ((bits & 7u) << 22);
    return __uint_as_float(moved) * 8.507059173023462e37f;  // 2^126
}
__device__ inline float e8m0_to_f32(uint32_t bits) {
    return __uint_as_float(bits == 0 ? 0x00400000u : bits << 23);
}

__device__ inline float weight_at(const MatrixView& w, int64_t row, int64_t col) {
    const int64_t at = row * w.cols + col;
    const auto* bytes = reinterpret_cast<const uint8_t*>(w.data);
    const auto* scales = reinterpret_cast<const uint8_t*>(w.scales);
    switch (w.format) {
        case WeightFormat::kF32:
            return reinterpret_cast<const float*>(w.data)[at];
        case WeightFormat::kBf16:
            return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(w.data)[at]);
        case WeightFormat::kFp8Tile: {
            const int64_t tiles = (w.cols + kFp8TileSize - 1) / kFp8TileSize;
            const int64_t tile = row / kFp8TileSize * tiles + col / kFp8TileSize;
            return e4m3_to_f32(bytes[at]) * reinterpret_cast<const float*>(w.scales)[tile];
        }
        case WeightFormat::kNvfp4:
            return e2m1_to_f32(bytes[at / 2] >> (at % 2 * 4)) *
                   (e4m3_to_f32(scales[at / 16]) * w.global_scale);
        case WeightFormat::kMxfp4:
            return e2m1_to_f32(bytes[at / 2] >> (at % 2 * 4)) * e8m0_to_f32(scales[at / 32]);
    }
    return 0;
}

}  // namespace k3pod::kernels

#pragma once
// The tensor core product that every GPU from sm_80 on has.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace k3pod::kernels {

// c[16, 8] += a[16, 16] b[16, 8], bf16 in, fp32 sums. Lane (g, t) = (lane / 4, lane % 4) holds
//   a[0], a[2]: row g; a[1], a[3]: row g + 8; b: column g
//   c[0], c[1]: row g, columns 2t and 2t + 1; c[2], c[3]: row g + 8
// a[0], a[1] meet b[0], and a[2], a[3] meet b[1]. Which inner index a register stands for is up to
// the caller, as long as a and b agree.
__device__ inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same with f16 in.
__device__ inline void mma_16x8x16_f16(float (&c)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline uint32_t pack_bf16x2(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
}

// x = high + low up to 2^-17 of x.
struct SplitBf16 {
    __nv_bfloat16 high, low;
};
__device__ inline SplitBf16 split_bf16(float x) {
    const __nv_bfloat16 high = __float2bfloat16_rn(x);
    return {high, __float2bfloat16_rn(x - __bfloat162float(high))};
}

// x = high + low up to 2^-22 of x, for 2^-2 <= |x| < 2^15; up to 2^-25 below.
struct SplitF16 {
    __half high, low;
};
__device__ inline SplitF16 split_f16(float x) {
    const __half high = __float2half_rn(x);
    return {high, __float2half_rn(x - __half2float(high))};
}

}  // namespace k3pod::kernels

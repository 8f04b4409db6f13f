#pragma once
// Rows read and written kVec floats at a time: 4 where everything is aligned, else 1.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "k3pod/base/bf16.h"

namespace k3pod::kernels {

template <int kVec>
struct alignas(4 * kVec) Floats {
    float at[kVec];
};

template <int kVec>
__device__ inline Floats<kVec> load(const float* p) {
    return *reinterpret_cast<const Floats<kVec>*>(p);
}

template <int kVec>
__device__ inline void store(float* p, const Floats<kVec>& v) {
    *reinterpret_cast<Floats<kVec>*>(p) = v;
}

__device__ inline Bf16 round_to_bf16(float v) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(v))};
}
__device__ inline float widen(Bf16 v) {
    return __uint_as_float(static_cast<uint32_t>(v.bits) << 16);
}

template <int kVec>
struct alignas(2 * kVec) Bf16s {
    Bf16 at[kVec];
};

template <int kVec>
__device__ inline void store(Bf16* p, const Floats<kVec>& v) {
    Bf16s<kVec> rounded;
#pragma unroll
    for (int i = 0; i < kVec; ++i) rounded.at[i] = round_to_bf16(v.at[i]);
    *reinterpret_cast<Bf16s<kVec>*>(p) = rounded;
}

// Stores to whichever of the two is there.
template <int kVec>
__device__ inline void store_outputs(float* f32, Bf16* bf16, int64_t at, const Floats<kVec>& v) {
    if (f32 != nullptr) store(f32 + at, v);
    if (bf16 != nullptr) store(bf16 + at, v);
}

}  // namespace k3pod::kernels

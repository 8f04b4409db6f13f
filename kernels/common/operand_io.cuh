#pragma once
// Activations as the operand of common/stream.cuh: split into two parts, in units of eight.
// They are read from memory once: a format whose values are scaled first keeps them where their
// units will be until the largest is known.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "common/mma.cuh"
#include "common/stream.cuh"
#include "common/vectors.cuh"
#include "k3pod/kernels/gemm.h"

namespace k3pod::kernels {

// Eight neighbouring values of a token as a unit of the operand's two parts.
struct SplitUnit {
    uint4 high, low;
};

// F::kPairsHalves: the order of a unit is 0, 4, 1, 5, 2, 6, 3, 7.
template <class F>
__device__ SplitUnit split_unit(const float (&values)[8], float scale) {
    alignas(16) uint16_t high[8], low[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const float value = values[F::kPairsHalves ? k / 2 + k % 2 * 4 : k];
        if constexpr (F::kIsF16) {
            const SplitF16 parts = split_f16(value * scale);
            high[k] = __half_as_ushort(parts.high), low[k] = __half_as_ushort(parts.low);
        } else {
            const SplitBf16 parts = split_bf16(value);
            high[k] = __bfloat16_as_ushort(parts.high), low[k] = __bfloat16_as_ushort(parts.low);
        }
    }
    return {*reinterpret_cast<const uint4*>(high), *reinterpret_cast<const uint4*>(low)};
}

// The power of two that brings values up to `largest` into [2^14, 2^15), where f16 is finest.
__device__ inline float f16_scale(float largest) {
    const int exponent = static_cast<int>(__float_as_uint(largest) >> 23);
    return __uint_as_float(static_cast<uint32_t>(min(max(268 - exponent, 1), 253)) << 23);
}

// What a token's values are multiplied with to become f16, from the bits of the largest of them.
struct TokenScales {
    uint32_t largest[kMaxStreamedTokens];
    __device__ float scale(int token) const { return f16_scale(__uint_as_float(largest[token])); }
};

// Eight values of a row of `cols` from `col` on; zeros beyond its end.
__device__ inline void load_unit(const DeviceRows& row, int32_t cols, int32_t col,
                                 float (&values)[8]) {
    if (row.f32 != nullptr && col + 8 <= cols &&
        reinterpret_cast<uintptr_t>(row.f32 + col) % 16 == 0) {
        const auto first = load<4>(row.f32 + col), second = load<4>(row.f32 + col + 4);
#pragma unroll
        for (int k = 0; k < 4; ++k) values[k] = first.at[k], values[k + 4] = second.at[k];
        return;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const bool is_there = col + k < cols;
        values[k] = !is_there            ? 0.0f
                    : row.f32 != nullptr ? row.f32[col + k]
                                         : widen(row.bf16[col + k]);
    }
}

// A block's columns of the activations. `Tokens` says where they come from and go: row(token), the
// values of a token (stride is not looked at); at(token), its column in shared memory; low_offset,
// how far behind a unit its second part is, 0 for rows of bf16 that have none.
template <class F, class Tokens>
class OperandLoader {
  public:
    __device__ OperandLoader(const Tokens& tokens, int32_t count, int32_t cols, StepRange of_block)
        : tokens_(tokens),
          count_(count),
          cols_(cols),
          units_(Operand<F::kUnits>::num_units(of_block.count())),
          first_col_(Operand<F::kUnits>::num_units(of_block.begin) * 8) {}

    // All threads of the block; the operand, and the scales of a format that has them, are there
    // for all of them when it returns.
    __device__ void load(TokenScales& scales) const {
        if constexpr (F::kIsF16) {
            load_raw(scales);
            for (int32_t token = 0; token < count_; ++token) {
                const float scale = scales.scale(token);
                for_each_unit(token, [&](int32_t, std::byte* at) {
                    float values[8];
                    take_raw(at, token, values);
                    put(at, split_unit<F>(values, scale));
                });
            }
        } else {
            for (int32_t token = 0; token < count_; ++token) {
                for_each_unit(token, [&](int32_t unit, std::byte* at) {
                    float values[8];
                    load_unit(tokens_.row(token), cols_, first_col_ + unit * 8, values);
                    put(at, split_unit<F>(values, 1.0f));
                });
            }
        }
        __syncthreads();
    }

  private:
    template <class Use>
    __device__ void for_each_unit(int32_t token, Use use) const {
        std::byte* column = tokens_.at(token);
        for (auto unit = static_cast<int32_t>(threadIdx.x); unit < units_;
             unit += static_cast<int32_t>(blockDim.x)) {
            use(unit, column + Operand<F::kUnits>::unit_offset(unit));
        }
    }
    __device__ void put(std::byte* at, const SplitUnit& x) const {
        *reinterpret_cast<uint4*>(at) = x.high;
        if (tokens_.low_offset > 0) *reinterpret_cast<uint4*>(at + tokens_.low_offset) = x.low;
    }
    // fp32 values take the places of both parts, those of a row of bf16 the first.
    __device__ void load_raw(TokenScales& scales) const {
        if (threadIdx.x < kMaxStreamedTokens) scales.largest[threadIdx.x] = 0;
        __syncthreads();
        for (int32_t token = 0; token < count_; ++token) {
            float largest = 0;
            for_each_unit(token, [&](int32_t unit, std::byte* at) {
                float values[8];
                load_unit(tokens_.row(token), cols_, first_col_ + unit * 8, values);
#pragma unroll
                for (const float v : values) largest = fmaxf(largest, fabsf(v));
                put_raw(at, token, values);
            });
            const uint32_t of_warp = __reduce_max_sync(kAllLanes, __float_as_uint(largest));
            if (lane_idx() == 0) atomicMax(&scales.largest[token], of_warp);
        }
        __syncthreads();
    }
    __device__ void put_raw(std::byte* at, int32_t token, const float (&values)[8]) const {
        if (tokens_.row(token).f32 != nullptr) {
            store(reinterpret_cast<float*>(at),
                  Floats<4>{values[0], values[1], values[2], values[3]});
            store(reinterpret_cast<float*>(at + tokens_.low_offset),
                  Floats<4>{values[4], values[5], values[6], values[7]});
        } else {
            Floats<8> all;
#pragma unroll
            for (int k = 0; k < 8; ++k) all.at[k] = values[k];
            store(reinterpret_cast<Bf16*>(at), all);
        }
    }
    __device__ void take_raw(const std::byte* at, int32_t token, float (&values)[8]) const {
        if (tokens_.row(token).f32 != nullptr) {
            const auto first = kernels::load<4>(reinterpret_cast<const float*>(at));
            const auto second =
                kernels::load<4>(reinterpret_cast<const float*>(at + tokens_.low_offset));
#pragma unroll
            for (int k = 0; k < 4; ++k) values[k] = first.at[k], values[k + 4] = second.at[k];
        } else {
            const auto all = *reinterpret_cast<const Bf16s<8>*>(at);
#pragma unroll
            for (int k = 0; k < 8; ++k) values[k] = widen(all.at[k]);
        }
    }

    Tokens tokens_;
    int32_t count_, cols_, units_, first_col_;
};

}  // namespace k3pod::kernels

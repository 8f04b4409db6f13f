#pragma once
// Weight formats as common/stream.cuh takes them: 16 bytes of a row by each lane.
//
// A format gives kUnits, the units of eight values in 16 bytes; widen<unit>(), one of them as four
// bf16 pairs; Scales, what a lane needs beside the weights of one step for its two rows, and load()
// for it; unscale(), what the finished sums are multiplied with.

#include <cstdint>

#include "common/stream_shape.h"
#include "common/weights.cuh"

namespace k3pod::kernels {

struct Bf16Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kBf16;
    static constexpr int kUnits = 1;
    static constexpr bool kScalesSums = false;
    static constexpr bool kPairsHalves = false;
    struct Scales {};
    struct ScaleRow {};
    static __device__ ScaleRow scale_row(const MatrixView&, int32_t, int) { return {}; }
    static __device__ Scales load(ScaleRow, ScaleRow, int32_t) { return {}; }
    struct Multipliers {};
    static __device__ Multipliers low(Scales) { return {}; }
    static __device__ Multipliers high(Scales) { return {}; }
    template <int kUnit>
    static __device__ void widen(const uint4& bytes, Multipliers, uint32_t (&pairs)[4]) {
        pairs[0] = bytes.x, pairs[1] = bytes.y, pairs[2] = bytes.z, pairs[3] = bytes.w;
    }
    static __device__ float unscale(const MatrixView&) { return 1.0f; }
};

struct Fp8Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kFp8Tile;
    static constexpr int kUnits = 2;
    static constexpr bool kScalesSums = true;  // the sums of a step instead of the weights
    static constexpr bool kPairsHalves = false;
    struct Scales {
        float low, high;
    };
    using ScaleRow = const float*;
    static __device__ ScaleRow scale_row(const MatrixView& w, int32_t row, int) {
        return reinterpret_cast<const float*>(w.scales) +
               int64_t{row / kFp8TileSize} * ((w.cols + kFp8TileSize - 1) / kFp8TileSize);
    }
    static __device__ Scales load(ScaleRow low, ScaleRow high, int32_t step) {
        const int32_t tile = step * kStepBytes / kFp8TileSize;
        return {__ldg(low + tile), __ldg(high + tile)};
    }
    struct Multipliers {};
    static __device__ Multipliers low(const Scales&) { return {}; }
    static __device__ Multipliers high(const Scales&) { return {}; }
    template <int kUnit>
    static __device__ void widen(const uint4& bytes, Multipliers, uint32_t (&pairs)[4]) {
        uint32_t first[2], second[2];
        widen_e4m3x4(kUnit == 0 ? bytes.x : bytes.z, first);
        widen_e4m3x4(kUnit == 0 ? bytes.y : bytes.w, second);
        pairs[0] = first[0], pairs[1] = first[1], pairs[2] = second[0], pairs[3] = second[1];
    }
    static __device__ float unscale(const MatrixView&) { return 1.0f; }
};

// Both FP4 formats: 32 values in 16 bytes.
struct Fp4Stream {
    static constexpr int kUnits = 4;
    static constexpr bool kScalesSums = false;
    static constexpr bool kPairsHalves = true;  // the pairs of a unit are (0, 4), (1, 5), ...
    using ScaleRow = const uint8_t*;
    template <int kUnit>
    static __device__ uint32_t word_of(const uint4& bytes) {
        if constexpr (kUnit == 0) return bytes.x;
        if constexpr (kUnit == 1) return bytes.y;
        if constexpr (kUnit == 2) return bytes.z;
        return bytes.w;
    }
};

struct Mxfp4Stream : Fp4Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kMxfp4;
    struct Scales {
        uint8_t low, high;
    };
    static __device__ ScaleRow scale_row(const MatrixView& w, int32_t row, int lane) {
        return reinterpret_cast<const uint8_t*>(w.scales) + int64_t{row} * (w.cols / 32) + lane;
    }
    static __device__ Scales load(ScaleRow low, ScaleRow high, int32_t step) {
        return {__ldg(low + step * 4), __ldg(high + step * 4)};
    }
    struct Multipliers {
        uint32_t of_block;
    };
    static __device__ Multipliers low(const Scales& s) { return {e8m0_multiplier(s.low)}; }
    static __device__ Multipliers high(const Scales& s) { return {e8m0_multiplier(s.high)}; }
    template <int kUnit>
    static __device__ void widen(const uint4& bytes, Multipliers scale, uint32_t (&pairs)[4]) {
        widen_e2m1x8(word_of<kUnit>(bytes), scale.of_block, pairs);
    }
    static __device__ float unscale(const MatrixView&) { return kFp4Unshift; }
};

struct Nvfp4Stream : Fp4Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kNvfp4;
    struct Scales {
        uint16_t low, high;  // of two blocks each
    };
    static __device__ ScaleRow scale_row(const MatrixView& w, int32_t row, int lane) {
        return reinterpret_cast<const uint8_t*>(w.scales) + int64_t{row} * (w.cols / 16) + 2 * lane;
    }
    static __device__ Scales load(ScaleRow low, ScaleRow high, int32_t step) {
        return {__ldg(reinterpret_cast<const uint16_t*>(low + step * 8)),
                __ldg(reinterpret_cast<const uint16_t*>(high + step * 8))};
    }
    struct Multipliers {
        uint32_t of_block[2];
    };
    static __device__ Multipliers both(uint32_t scales) {
        return {{e4m3_multiplier(scales & 0xffu), e4m3_multiplier(scales >> 8)}};
    }
    static __device__ Multipliers low(const Scales& s) { return both(s.low); }
    static __device__ Multipliers high(const Scales& s) { return both(s.high); }
    template <int kUnit>
    static __device__ void widen(const uint4& bytes, Multipliers scale, uint32_t (&pairs)[4]) {
        widen_e2m1x8(word_of<kUnit>(bytes), scale.of_block[kUnit / 2], pairs);
    }
    static __device__ float unscale(const MatrixView& w) { return kFp4Unshift * w.global_scale; }
};

}  // namespace k3pod::kernels

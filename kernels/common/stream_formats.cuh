#pragma once
// Weight formats as common/stream.cuh takes them: 16 bytes of a row by each lane.
//
// A format gives kUnits, the units of eight values in 16 bytes; kIsF16, what the tensor cores take
// them as; widen<unit>(), one unit as four pairs; scale_row(), where the scales of a row begin for
// one lane; copy_scales(), which brings those of one step into shared memory; Scales, what a lane
// makes of them there; unscale(), what the finished sums are multiplied with.

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/block.cuh"
#include "common/stream_shape.h"
#include "common/weights.cuh"

namespace k3pod::kernels {

// Steps of a row.
struct StepRange {
    int32_t begin = 0, end = 0;
    __device__ int32_t count() const { return end - begin; }
};

// Rows g and g + 8 of a tile, as one lane takes them.
struct LaneRows {
    const std::byte* data[2] = {};    // at the lane's bytes of step 0
    const std::byte* scales[2] = {};  // at the lane's of step 0; words, aligned
    int32_t row_bytes = 0;            // from the lane's first byte on
    int32_t scale_step = 0;           // FP4: bytes of scales that half a step brings
    StepRange steps;                  // of the warp
};

struct Bf16Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kBf16;
    static constexpr int kUnits = 1;
    static constexpr bool kIsF16 = false;
    static constexpr bool kScalesSums = false;
    static constexpr bool kPairsHalves = false;
    static constexpr bool kSharesScales = false;
    static constexpr bool kHasShifts = false;
    static __device__ const std::byte* scale_row(const MatrixView&, int32_t, int) {
        return nullptr;
    }
    static __device__ const std::byte* word_of(const std::byte* scale_row) { return scale_row; }
    static __device__ void copy_scales(std::byte*, const LaneRows&, int32_t) {}
    static constexpr int32_t kScaleStep = 0;
    struct Scales {};
    static __device__ Scales scales(const std::byte*, const int (&)[2]) { return {}; }
    struct Multipliers {};
    static __device__ Multipliers multipliers(Scales, int, int) { return {}; }
    template <int kUnit>
    static __device__ void widen(const uint4& bytes, Multipliers, uint32_t (&pairs)[4]) {
        pairs[0] = bytes.x, pairs[1] = bytes.y, pairs[2] = bytes.z, pairs[3] = bytes.w;
    }
    static __device__ float unscale(const MatrixView&) { return 1.0f; }
};

struct Fp8Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kFp8Tile;
    static constexpr int kUnits = 2;
    static constexpr bool kIsF16 = true;       // one instruction makes f16 of two values
    static constexpr bool kScalesSums = true;  // the sums of a step instead of the weights
    static constexpr bool kPairsHalves = false;
    static constexpr bool kSharesScales = true;  // eight rows lie in one tile of 128
    static constexpr bool kHasShifts = false;
    static __device__ const std::byte* scale_row(const MatrixView& w, int32_t row, int) {
        const int64_t tiles = (w.cols + kFp8TileSize - 1) / kFp8TileSize;
        return w.scales + row / kFp8TileSize * tiles * 4;
    }
    static constexpr int32_t kScaleStep = 0;
    static __device__ const std::byte* word_of(const std::byte* scale_row) { return scale_row; }
    static __device__ void copy_scales(std::byte* to, const LaneRows& rows, int32_t step) {
        if (lane_idx() != 0) return;
        copy_word_async(to, rows.scales[0] + step * 4);
        copy_word_async(to + 4, rows.scales[1] + step * 4);
    }
    struct Scales {
        float row_g, row_g8;
    };
    static __device__ Scales scales(const std::byte* at, const int (&)[2]) {
        const auto* both = reinterpret_cast<const float*>(at);
        return {both[0], both[1]};
    }
    struct Multipliers {};
    static __device__ Multipliers multipliers(const Scales&, int, int) { return {}; }
    template <int kUnit>
    static __device__ void widen(const uint4& bytes, Multipliers, uint32_t (&pairs)[4]) {
        const uint32_t first = kUnit == 0 ? bytes.x : bytes.z;
        const uint32_t second = kUnit == 0 ? bytes.y : bytes.w;
        pairs[0] = e4m3x2_to_f16x2(first), pairs[1] = e4m3x2_to_f16x2(first >> 16);
        pairs[2] = e4m3x2_to_f16x2(second), pairs[3] = e4m3x2_to_f16x2(second >> 16);
    }
    static __device__ float unscale(const MatrixView&) { return 1.0f; }
};

// Both FP4 formats: 32 values in 16 bytes.
struct Fp4Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kMxfp4;  // or kNvfp4: rings are alike
    static constexpr int kUnits = 4;
    static constexpr bool kIsF16 = false;
    static constexpr bool kScalesSums = false;
    static constexpr bool kPairsHalves = true;  // the pairs of a unit are (0, 4), (1, 5), ...
    static constexpr bool kSharesScales = false;
    static constexpr bool kHasShifts = true;
    // A lane's one or two bytes lie in one aligned word, from this bit on.
    static __device__ int scale_shift(const std::byte* scale_row) {
        return static_cast<int>(reinterpret_cast<uintptr_t>(scale_row) % 4 * 8);
    }
    static __device__ const std::byte* word_of(const std::byte* scale_row) {
        return scale_row - reinterpret_cast<uintptr_t>(scale_row) % 4;
    }
    static __device__ void copy_scales(std::byte* to, const LaneRows& rows, int32_t step) {
#pragma unroll
        for (int half = 0; half < kStepHalves; ++half) {
            const bool is_there = step * kStepBytes + half * kStepBytes / 2 < rows.row_bytes;
            const int32_t offset = (step * kStepHalves + half) * rows.scale_step;
            std::byte* words = to + half * 128 + lane_idx() * 4;
            copy_word_async(words, rows.scales[0] + (is_there ? offset : 0));
            copy_word_async(words + 256, rows.scales[1] + (is_there ? offset : 0));
        }
    }
    // Of the two rows and the two halves of a step.
    struct Scales {
        uint32_t at[2][kStepHalves];
    };
    static __device__ Scales scales(const std::byte* at, const int (&shifts)[2]) {
        const auto* words = reinterpret_cast<const uint32_t*>(at) + lane_idx();
        return {{{words[0] >> shifts[0], words[32] >> shifts[0]},
                 {words[64] >> shifts[1], words[96] >> shifts[1]}}};
    }
    template <int kUnit>
    static __device__ uint32_t word_at(const uint4& bytes) {
        if constexpr (kUnit == 0) return bytes.x;
        if constexpr (kUnit == 1) return bytes.y;
        if constexpr (kUnit == 2) return bytes.z;
        return bytes.w;
    }
};

struct Mxfp4Stream : Fp4Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kMxfp4;
    static __device__ const std::byte* scale_row(const MatrixView& w, int32_t row, int lane) {
        return w.scales + int64_t{row} * (w.cols / 32) + min(lane, w.cols / 32 - 1);
    }
    static constexpr int32_t kScaleStep = 4;
    struct Multipliers {
        uint32_t of_block;
    };
    static __device__ Multipliers multipliers(const Scales& s, int row, int half) {
        return {e8m0_multiplier(s.at[row][half] & 0xffu)};
    }
    template <int kUnit>
    static __device__ void widen(const uint4& bytes, Multipliers scale, uint32_t (&pairs)[4]) {
        widen_e2m1x8(word_at<kUnit>(bytes), scale.of_block, pairs);
    }
    static __device__ float unscale(const MatrixView&) { return kFp4Unshift; }
};

struct Nvfp4Stream : Fp4Stream {
    static constexpr WeightFormat kFormat = WeightFormat::kNvfp4;
    static __device__ const std::byte* scale_row(const MatrixView& w, int32_t row, int lane) {
        return w.scales + int64_t{row} * (w.cols / 16) + 2 * min(lane, w.cols / 32 - 1);
    }
    static constexpr int32_t kScaleStep = 8;
    struct Multipliers {
        uint32_t of_block[2];
    };
    static __device__ Multipliers multipliers(const Scales& s, int row, int half) {
        const uint32_t both = s.at[row][half];
        return {{e4m3_multiplier(both & 0xffu), e4m3_multiplier(both >> 8 & 0xffu)}};
    }
    template <int kUnit>
    static __device__ void widen(const uint4& bytes, Multipliers scale, uint32_t (&pairs)[4]) {
        widen_e2m1x8(word_at<kUnit>(bytes), scale.of_block[kUnit / 2], pairs);
    }
    static __device__ float unscale(const MatrixView& w) { return kFp4Unshift * w.global_scale; }
};

}  // namespace k3pod::kernels

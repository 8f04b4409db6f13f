#pragma once
// Weights through the tensor cores at the rate of the memory, for few columns of activations.
//
// Every lane streams its own bytes through its own slots of shared memory: a warp takes 128 bytes
// each of the 16 rows of a tile in one step, lane (g, t) two pieces of 16 of rows g and g + 8, by
// asynchronous copies that run ahead. Nobody waits for another lane's bytes, so the stream knows no
// barriers; the warps of a group meet only to add their sums up, once a tile, while the next tile's
// bytes are on the way.
//
// A tile is the row side of m16n8k16; the activations are the column side and stay in shared
// memory, as bf16 or f16 with a second part that holds what the first one rounds off. The warps of
// a group share the columns of a tile, and so do the blocks of a cluster, each with its own columns
// of the activations. Sums are added up in the order of blocks and warps.
//
// A dot product does not care in which order the columns are met. So a lane takes 16 contiguous
// bytes of a row as they are stored, and the activations are laid out to match: see Operand.

#include <cooperative_groups.h>

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/block.cuh"
#include "common/mma.cuh"
#include "common/stream_formats.cuh"
#include "common/stream_shape.h"

namespace k3pod::kernels {

// The column side: columns of 16-bit values, each in units of eight. A lane's 16 bytes of weights
// of half a step hold kUnits units; unit j of the lane t of a quad in half h of step s is at
// (((2s + h) * kUnits + j) * 4 + t) * 16 bytes, so that a quad reads 64 contiguous bytes.
template <int kUnits>
struct Operand {
    static constexpr int32_t kHalfBytes = kUnits * 64;
    static __device__ int32_t column_bytes(int32_t num_steps) {
        return operand_column_bytes(kUnits, num_steps);
    }
    // Of a column.
    static __device__ int32_t num_units(int32_t num_steps) {
        return num_steps * kStepHalves * kUnits * 4;
    }
    // Where the unit of the eight values from `unit * 8` on goes.
    static __device__ int32_t unit_offset(int32_t unit) {
        const int32_t half = unit / (4 * kUnits);
        const int32_t lane = unit / kUnits % 4;
        return ((half * kUnits + unit % kUnits) * 4 + lane) * 16;
    }
};

// One lane's side of the operand: where its column starts, its place in the quad included. A lane
// without a column of its own takes another's: sums of columns that do not exist are not looked at.
struct OperandLane {
    const std::byte* high = nullptr;
    const std::byte* low = nullptr;  // the second part of every value; null: there is none
    int32_t tile_stride = 0;         // bytes, from eight columns to the next eight
};

// The sums of a lane: of rows g and g + 8, columns 2t and 2t + 1 of each eight columns.
template <int kTiles>
using Sums = float[kTiles][4];

// Eight values of rows g and g + 8 as pairs.
struct UnitPairs {
    uint32_t row_g[4], row_g8[4];
};

// sums += 16 rows times one unit of eight columns' values.
template <class F>
__device__ inline void add_unit(float (&sums)[4], const UnitPairs& w, const std::byte* unit_at) {
    const uint4 unit = *reinterpret_cast<const uint4*>(unit_at);
    const uint32_t first[4] = {w.row_g[0], w.row_g8[0], w.row_g[1], w.row_g8[1]};
    const uint32_t second[4] = {w.row_g[2], w.row_g8[2], w.row_g[3], w.row_g8[3]};
    if constexpr (F::kIsF16) {
        mma_16x8x16_f16(sums, first, {unit.x, unit.y});
        mma_16x8x16_f16(sums, second, {unit.z, unit.w});
    } else {
        mma_16x8x16(sums, first, {unit.x, unit.y});
        mma_16x8x16(sums, second, {unit.z, unit.w});
    }
}

// A lane's weights of a step: of rows g and g + 8, two pieces each.
template <class F>
struct LaneStep {
    uint4 at[2][kStepHalves];
    typename F::Scales scales;
};

// sums += the weights of half a step times the operand's units at `at`.
template <class F, int kTiles, int kUnit = 0>
__device__ inline void add_half(Sums<kTiles>& sums, const LaneStep<F>& step, int half,
                                const OperandLane& operand, int32_t at) {
    UnitPairs pairs;
    F::template widen<kUnit>(step.at[0][half], F::multipliers(step.scales, 0, half), pairs.row_g);
    F::template widen<kUnit>(step.at[1][half], F::multipliers(step.scales, 1, half), pairs.row_g8);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
        const int32_t unit = at + kUnit * 64 + tile * operand.tile_stride;
        add_unit<F>(sums[tile], pairs, operand.high + unit);
        if (operand.low != nullptr) add_unit<F>(sums[tile], pairs, operand.low + unit);
    }
    if constexpr (kUnit + 1 < F::kUnits) {
        add_half<F, kTiles, kUnit + 1>(sums, step, half, operand, at);
    }
}

// sums += a step; `index`: of the step in the operand. Halves add up apart, so that one need not
// wait for the other's products.
template <class F, int kTiles>
__device__ inline void add_step(Sums<kTiles> (&sums)[kStepHalves], const LaneStep<F>& step,
                                const OperandLane& operand, int32_t index) {
    constexpr int32_t kHalfBytes = Operand<F::kUnits>::kHalfBytes;
    const int32_t at = index * kStepHalves * kHalfBytes;
    if constexpr (F::kScalesSums) {
        Sums<kTiles> of_halves[kStepHalves] = {};
#pragma unroll
        for (int half = 0; half < kStepHalves; ++half) {
            add_half<F, kTiles>(of_halves[half], step, half, operand, at + half * kHalfBytes);
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const float scale = c < 2 ? step.scales.row_g : step.scales.row_g8;
                sums[0][tile][c] += scale * (of_halves[0][tile][c] + of_halves[1][tile][c]);
            }
        }
    } else {
#pragma unroll
        for (int half = 0; half < kStepHalves; ++half) {
            add_half<F, kTiles>(sums[half], step, half, operand, at + half * kHalfBytes);
        }
    }
}

// What a warp knows about itself.
struct StreamWarp {
    int group, warp_of_group, row, lane_of_quad;  // row: g
    __device__ explicit StreamWarp(int32_t group_warps)
        : group(warp_idx() / group_warps),
          warp_of_group(warp_idx() % group_warps),
          row(lane_idx() / 4),
          lane_of_quad(lane_idx() % 4) {}
};

// Of the steps of a block, those of a warp.
__device__ inline StepRange steps_of_warp(const StreamWarp& me, int32_t group_warps,
                                          StepRange of_block) {
    const int32_t count = of_block.count();
    return {of_block.begin + count * me.warp_of_group / group_warps,
            of_block.begin + count * (me.warp_of_group + 1) / group_warps};
}

// A warp's ring. Each lane's copies are its own; scales of a format that shares them are lane 0's.
template <class F, int kStages>
class LaneRing {
  public:
    __device__ explicit LaneRing(std::byte* rings)
        : at_(rings + warp_idx() * kStages * kStageBytes) {}

    __device__ void fill(int slot, const LaneRows& rows, int32_t step) {
        std::byte* stage = at_ + slot * kStageBytes;
        std::byte* own = stage + lane_idx() * 16;
        const int32_t offset = step * kStepBytes;
        const std::byte *row_g = rows.data[0] + offset, *row_g8 = rows.data[1] + offset;
        const bool is_first = offset < rows.row_bytes;
        const bool is_second = offset + kStepBytes / 2 < rows.row_bytes;
        copy_async(own, row_g, is_first);
        copy_async(own + 512, row_g + kStepBytes / 2, is_second);
        copy_async(own + 1024, row_g8, is_first);
        copy_async(own + 1536, row_g8 + kStepBytes / 2, is_second);
        F::copy_scales(stage + kStageData, rows, step);
    }
    // After the copies are there. G: F, or the one format of F's kind that the rows have.
    template <class G>
    __device__ LaneStep<G> take(int slot, const int (&shifts)[2]) const {
        const std::byte* stage = at_ + slot * kStageBytes;
        const auto* own = reinterpret_cast<const uint4*>(stage + lane_idx() * 16);
        return {{{own[0], own[32]}, {own[64], own[96]}}, G::scales(stage + kStageData, shifts)};
    }

  private:
    static constexpr int kStageBytes = stage_bytes(F::kFormat);
    std::byte* at_;
};

// The stream of one warp. `Tiles` is where its tiles come from, in the order in which they are
// consumed: bool next(LaneRows&) gives the next one, or says that there is none.
template <class F, int kStages, class Tiles>
class LaneStream {
  public:
    __device__ LaneStream(std::byte* rings, const Tiles& tiles) : ring_(rings), tiles_(tiles) {}

    // Starts the first copies. Nothing that Tiles reads may still be written by others.
    __device__ void start() {
#pragma unroll
        for (int slot = 0; slot < kStages; ++slot) fill_next(slot);
    }

    // sums += the warp's `count` steps of the next tile. `operand_step` is where the first of them
    // lies in the operand.
    template <class G, int kTiles>
    __device__ void add_tile(Sums<kTiles>& sums, int32_t count, const int (&shifts)[2],
                             const OperandLane& operand, int32_t operand_step) {
        Sums<kTiles> of_halves[kStepHalves] = {};
        for (int32_t i = 0; i < count; ++i) {
            wait_for_copies<kStages - 1>();
            if constexpr (F::kSharesScales) __syncwarp();
            const LaneStep<G> step = ring_.template take<G>(slot_, shifts);
            add_step<G, kTiles>(of_halves, step, operand, operand_step + i);
            if constexpr (F::kSharesScales) __syncwarp();
            fill_next(slot_);
            slot_ = slot_ + 1 == kStages ? 0 : slot_ + 1;
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
            for (int c = 0; c < 4; ++c)
                sums[tile][c] += of_halves[0][tile][c] + of_halves[1][tile][c];
        }
    }

  private:
    __device__ void fill_next(int slot) {
        while (!is_over_ && step_ == rows_.steps.end) {
            is_over_ = !tiles_.next(rows_);
            step_ = rows_.steps.begin;
        }
        if (!is_over_) ring_.fill(slot, rows_, step_++);
        commit_copies();  // an empty one too: the waits count them
    }

    LaneRing<F, kStages> ring_;
    Tiles tiles_;
    LaneRows rows_;
    int32_t step_ = 0;
    int slot_ = 0;
    bool is_over_ = false;
};

// Where warps leave what they hold of a tile: kValues floats a lane. Who reads them meets before:
// the warps of a group, or all warps of a cluster whose blocks share tiles. Rounds take turns
// between two halves, so one meeting a round is enough.
template <int kValues>
class RoundSums {
  public:
    __device__ RoundSums(std::byte* memory, const StreamShape& shape, const StreamWarp& me)
        : half_(reinterpret_cast<float*>(memory)),
          group_warps_(shape.group_warps),
          cluster_(shape.cluster),
          group_(me.group) {}

    __device__ void put(const float (&values)[kValues]) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
            half_[(warp_idx() * kWarpSize + lane_idx()) * kValues + i] = values[i];
        }
    }
    __device__ void meet() const {
        if (cluster_ > 1) {
            cooperative_groups::this_cluster().sync();
        } else if (group_warps_ == 1) {
            __syncwarp();
        } else {
            asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "r"(group_warps_ * kWarpSize)
                         : "memory");
        }
    }
    // Value `value` of lane `lane` of a group, summed over the cluster's blocks and their warps.
    __device__ float total(int group, int lane, int value) const {
        const int index = (group * group_warps_ * kWarpSize + lane) * kValues + value;
        float sum = 0;
        for (int block = 0; block < cluster_; ++block) {
            const float* at = half_ + index;
            if (cluster_ > 1) at = cooperative_groups::this_cluster().map_shared_rank(at, block);
            for (int w = 0; w < group_warps_; ++w) sum += at[w * kWarpSize * kValues];
        }
        return sum;
    }
    __device__ void next_round() {
        const int half = static_cast<int>(blockDim.x) * kValues;
        half_ += is_upper_ ? -half : half;
        is_upper_ = !is_upper_;
    }

  private:
    float* half_;
    int32_t group_warps_, cluster_;
    int group_;
    bool is_upper_ = false;
};

}  // namespace k3pod::kernels

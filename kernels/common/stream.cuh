#pragma once
// Weights through the tensor cores at the rate of the memory, for at most eight columns of
// activations.
//
// A block is four warps that keep a ring of shared memory full by bulk copies, and sixteen that
// consume it. The copies never wait for anything but room, so the memory stays busy while the
// consumers wait for their inputs, exchange sums or write. A tile is 16 rows of weights, the row
// side of m16n8k16; the activations are the column side and stay in shared memory. Consumers form
// up to four groups with a tile each; the warps of a group share the columns of their tile and add
// their sums up in order at its end.
//
// A dot product does not care in which order the columns are met. So a lane takes 16 contiguous
// bytes of a row as they are stored, and the activations are laid out to match: see Operand.

#include <cstdint>

#include "common/block.cuh"
#include "common/bulk_copy.cuh"
#include "common/mma.cuh"
#include "common/stream_formats.cuh"
#include "common/stream_shape.h"

namespace k3pod::kernels {

inline constexpr int kConsumers = kConsumerWarps * kWarpSize;
inline constexpr int kStreamThreads = kConsumers + kProducerWarps * kWarpSize;
// Steps of one warp in a chunk, when four warps share it.
inline constexpr int kMaxWarpSteps = kMaxChunkBytes / kStepBytes / 4;

// Shared memory of a block, in this order.
struct StreamMemory {
    uint64_t full[kMaxStages];
    uint64_t empty[kMaxStages];
    float sums[kConsumerWarps][4 * kWarpSize];
    // operand, stages

    __device__ std::byte* operand() { return reinterpret_cast<std::byte*>(this + 1); }
    __device__ std::byte* stage(const StreamShape& shape, int slot) {
        return operand() + shape.operand_bytes + slot * shape.stage_bytes;
    }
};
static_assert(sizeof(StreamMemory) == kStreamMemoryBytes && kStreamMemoryBytes % 128 == 0);

// Where the ring is: the count of stages passed so far, the same for the producer and all groups.
struct RingPosition {
    int32_t passed = 0;
};

// Before the first use, by all threads of the block. consumers_of_stage: the warps that read one.
__device__ inline void init_ring(StreamMemory& memory, const StreamShape& shape,
                                 int consumers_of_stage) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < shape.num_stages; ++i) {
            barrier_init(&memory.full[i], 1);
            barrier_init(&memory.empty[i], static_cast<uint32_t>(consumers_of_stage));
        }
        barrier_init_fence();
    }
    __syncthreads();
}

// One stage: 16 rows of a tile, or a chunk of them. One warp; `row` is the lane's of the tile, null
// for one that does not exist. A bulk copy takes a warp about a hundred cycles to start, so rows
// that lie one behind the other come together: a tile has two runs of eight.
__device__ inline void fill_stage(const StreamShape& shape, std::byte* stage, uint64_t* full,
                                  const std::byte* row, int chunk) {
    constexpr int kRunRows = 8;
    const int lane = lane_idx();
    const unsigned rows = __ballot_sync(kAllLanes, row != nullptr);
    auto bytes = static_cast<uint32_t>(shape.chunk_size(chunk));
    if (lane == 0) barrier_expect(full, bytes * static_cast<uint32_t>(__popc(rows)));
    __syncwarp();
    if (row == nullptr) return;
    if (shape.num_chunks == 1) {
        if (lane % kRunRows != 0) return;
        bytes *= static_cast<uint32_t>(__popc(rows >> lane & 0xffu));
    }
    bulk_copy_once(stage + lane * shape.stage_stride(), row + int64_t{chunk} * shape.chunk_bytes,
                   bytes, full);
}

// Fills the ring with `num_tiles` tiles; row_of(tile, row) is where a row of weights starts, or
// null for one that does not exist; rows 0 to 7 of a tile lie one behind the other, and so do 8 to
// 15. Groups take tiles in turn, and their chunks alternate, so that all groups have work. All
// producer warps; a slot is always the same one's, or it could take an old phase for its own.
template <class RowOf>
__device__ void produce_tiles(StreamMemory& memory, const StreamShape& shape, int num_tiles,
                              RowOf row_of, RingPosition& at) {
    const int producer = warp_idx() - kConsumerWarps;
    for (int first = 0; first < num_tiles; first += shape.num_groups) {
        const int active = min(shape.num_groups, num_tiles - first);
        for (int i = 0; i < active * shape.num_chunks; ++i, ++at.passed) {
            const int slot = at.passed % shape.num_stages;
            if (slot % kProducerWarps != producer) continue;
            const int round = at.passed / shape.num_stages;
            const std::byte* row =
                lane_idx() < kTileRows ? row_of(first + i % active, lane_idx()) : nullptr;
            if (round > 0) barrier_wait(&memory.empty[slot], (round - 1) & 1);
            fill_stage(shape, memory.stage(shape, slot), &memory.full[slot], row, i / active);
        }
    }
}

// The column side: `columns` columns of bf16 values, each in units of eight. A lane's 16 bytes of
// weights of one step hold kUnits units; unit j of the lane t of a quad in step s is at
// ((s * kUnits + j) * 4 + t) * 16 bytes, so that a quad reads 64 contiguous bytes.
template <int kUnits>
struct Operand {
    static __device__ int32_t column_bytes(int32_t row_bytes) {
        return operand_column_bytes(kUnits, row_bytes);
    }
    // Of a column, those included that fill its last step.
    static __device__ int32_t num_units(int32_t row_bytes) {
        return (row_bytes + kStepBytes - 1) / kStepBytes * kUnits * 4;
    }
    // Where the unit of the eight values from `unit * 8` on goes.
    static __device__ int32_t unit_offset(int32_t unit) {
        const int32_t step = unit / (4 * kUnits);
        const int32_t lane = unit / kUnits % 4;
        return ((step * kUnits + unit % kUnits) * 4 + lane) * 16;
    }
};

// One lane's side of the operand: where its column starts, its place in the quad included. A lane
// without a column of its own takes another's: sums of columns that do not exist are not looked at.
struct OperandLane {
    const std::byte* high = nullptr;
    const std::byte* low = nullptr;  // the second bf16 part of every value; null: there is none
    int32_t num_tiles = 1;           // of eight columns
    int32_t tile_stride = 0;         // bytes
};

__device__ inline uint4 load_unit(const std::byte* at) {
    return *reinterpret_cast<const uint4*>(at);
}

// The sums of a lane: of rows g and g + 8, for each eight columns.
template <int kTiles>
using Sums = float[kTiles][4];

// Eight values of rows g and g + 8 as pairs.
struct UnitPairs {
    uint32_t row_g[4], row_g8[4];
};

// sums += 16 rows times one unit of eight columns' values.
__device__ inline void add_unit(float (&sums)[4], const UnitPairs& w, const uint4& unit) {
    mma_16x8x16(sums, {w.row_g[0], w.row_g8[0], w.row_g[1], w.row_g8[1]}, {unit.x, unit.y});
    mma_16x8x16(sums, {w.row_g[2], w.row_g8[2], w.row_g[3], w.row_g8[3]}, {unit.z, unit.w});
}

// sums += the lane's 16 bytes of two rows times the operand's units of step `step`.
template <class F, int kTiles, int kUnit = 0>
__device__ inline void add_step(Sums<kTiles>& sums, const uint4& row_g, const uint4& row_g8,
                                const typename F::Scales& scales, const OperandLane& operand,
                                int32_t step) {
    UnitPairs pairs;
    F::template widen<kUnit>(row_g, F::low(scales), pairs.row_g);
    F::template widen<kUnit>(row_g8, F::high(scales), pairs.row_g8);
    const int32_t at = (step * F::kUnits + kUnit) * 64;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
        if (kTiles > 1 && tile >= operand.num_tiles) continue;
        const int32_t of_tile = at + tile * operand.tile_stride;
        add_unit(sums[tile], pairs, load_unit(operand.high + of_tile));
        if (operand.low != nullptr) {
            add_unit(sums[tile], pairs, load_unit(operand.low + of_tile));
        }
    }
    if constexpr (kUnit + 1 < F::kUnits) {
        add_step<F, kTiles, kUnit + 1>(sums, row_g, row_g8, scales, operand, step);
    }
}

// What consumers know about themselves. Groups have a power of two of warps.
struct Consumer {
    int group, warp_of_group, row, lane_of_quad;  // row: g
    int group_warps_log2;
    __device__ explicit Consumer(const StreamShape& shape)
        : row(lane_idx() / 4),
          lane_of_quad(lane_idx() % 4),
          group_warps_log2(shape.group_warps_log2()) {
        group = warp_idx() >> group_warps_log2;
        warp_of_group = warp_idx() - (group << group_warps_log2);
    }
    __device__ int group_warps() const { return 1 << group_warps_log2; }
    __device__ int thread_of_group() const { return warp_of_group * kWarpSize + lane_idx(); }
};

// The steps of one chunk that a warp takes.
struct WarpSteps {
    int32_t first_of_row, first_of_chunk, count;
    __device__ WarpSteps(const StreamShape& shape, const Consumer& me, int chunk) {
        const int32_t steps = (shape.chunk_size(chunk) + kStepBytes - 1) / kStepBytes;
        const int32_t each = (steps + me.group_warps() - 1) >> me.group_warps_log2;
        first_of_chunk = me.warp_of_group * each;
        first_of_row = chunk * (shape.chunk_bytes / kStepBytes) + first_of_chunk;
        count = max(0, min(each, steps - first_of_chunk));
    }
};

// The scales of two rows of a tile, for at most kSteps steps of one warp in one chunk. They do not
// go through the ring, so they are asked for one chunk ahead.
template <class F, int kSteps>
struct ChunkScales {
    typename F::Scales at[kSteps];

    template <class ScaleRows>
    __device__ void load(const StreamShape& shape, const Consumer& me, ScaleRows scale_row,
                         int tile, int chunk) {
        const WarpSteps steps(shape, me, chunk);
        const typename F::ScaleRow low = scale_row(tile, me.row, me.lane_of_quad);
        const typename F::ScaleRow high = scale_row(tile, me.row + 8, me.lane_of_quad);
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
            const int32_t step = steps.first_of_row + i;
            const bool is_in_row = step * kStepBytes + me.lane_of_quad * 16 < shape.row_bytes;
            at[i] = {};
            if (i < steps.count && (is_in_row || F::kScalesSums)) at[i] = F::load(low, high, step);
        }
    }
};

// sums += one chunk of a tile. `rows` is where the tile's first row lies in shared memory;
// operand_step is the step of the operand that the chunk begins with.
template <class F, int kTiles, int kSteps>
__device__ inline void add_chunk(Sums<kTiles>& sums, const StreamShape& shape, const Consumer& me,
                                 const std::byte* rows, int chunk,
                                 const ChunkScales<F, kSteps>& scales, const OperandLane& operand,
                                 int32_t operand_step) {
    const WarpSteps steps(shape, me, chunk);
    const std::byte* bytes = rows + me.row * shape.stage_stride() + me.lane_of_quad * 16 +
                             steps.first_of_chunk * kStepBytes;
    const int32_t to_row_g8 = 8 * shape.stage_stride();
    const bool is_ragged = shape.row_bytes % kStepBytes != 0;
    operand_step += steps.first_of_chunk;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        if (i >= steps.count) continue;
        const int32_t step = steps.first_of_row + i;
        uint4 row_g = load_unit(bytes + i * kStepBytes);
        uint4 row_g8 = load_unit(bytes + i * kStepBytes + to_row_g8);
        if (is_ragged && step * kStepBytes + me.lane_of_quad * 16 >= shape.row_bytes) {
            row_g = row_g8 = {};
        }
        if constexpr (F::kScalesSums) {
            Sums<kTiles> of_step = {};
            add_step<F, kTiles>(of_step, row_g, row_g8, scales.at[i], operand, operand_step + i);
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const float scale = c < 2 ? scales.at[i].low : scales.at[i].high;
                    sums[tile][c] += scale * of_step[tile][c];
                }
            }
        } else {
            add_step<F, kTiles>(sums, row_g, row_g8, scales.at[i], operand, operand_step + i);
        }
    }
}

// Consumes the tiles that produce_tiles() brings. scale_row(tile, row, lane_of_quad) is the row's
// F::ScaleRow, of some row that exists where this one does not. finish(tile, sums) gets each warp's
// sums of a tile; all warps of the group call it together. All consumer warps.
template <class F, class ScaleRows, class Finish>
__device__ void consume_tiles(StreamMemory& memory, const StreamShape& shape, int num_tiles,
                              const OperandLane& operand, ScaleRows scale_row, Finish finish,
                              RingPosition& at) {
    const Consumer me(shape);
    ChunkScales<F, kMaxWarpSteps> next;
    if (me.group < num_tiles) next.load(shape, me, scale_row, me.group, 0);
    for (int first = 0; first < num_tiles; first += shape.num_groups) {
        const int active = min(shape.num_groups, num_tiles - first);
        const int tile = first + me.group;
        Sums<1> sums = {};
        for (int chunk = 0; chunk < shape.num_chunks && me.group < active; ++chunk) {
            const ChunkScales<F, kMaxWarpSteps> scales = next;
            const bool is_last = chunk + 1 == shape.num_chunks;
            const int next_tile = is_last ? tile + shape.num_groups : tile;
            if (next_tile < num_tiles) {
                next.load(shape, me, scale_row, next_tile, is_last ? 0 : chunk + 1);
            }
            const int passed = at.passed + chunk * active + me.group;
            const int slot = passed % shape.num_stages;
            const int round = passed / shape.num_stages;
            // Another group may not have met this slot's last round yet, and a barrier only tells
            // odd rounds from even ones.
            if (round > 0) barrier_wait(&memory.empty[slot], (round - 1) & 1);
            barrier_wait(&memory.full[slot], round & 1);
            add_chunk<F, 1, kMaxWarpSteps>(sums, shape, me, memory.stage(shape, slot), chunk,
                                           scales, operand,
                                           chunk * (shape.chunk_bytes / kStepBytes));
            __syncwarp();
            if (lane_idx() == 0) barrier_arrive(&memory.empty[slot]);
        }
        if (me.group < active) finish(tile, sums[0]);
        at.passed += active * shape.num_chunks;
    }
}

// Adds up what the warps of a group hold, in the order of the warps. total(at) runs in every thread
// of the group, where at(lane * kValues + i) is the sum of sums[i] of that lane. All warps of the
// group.
template <int kValues, class Total>
__device__ inline void sum_over_group(StreamMemory& memory, const Consumer& me,
                                      const float (&sums)[kValues], Total total) {
    const int first_warp = me.group * me.group_warps();
    const int threads = me.group_warps() * kWarpSize;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
        memory.sums[first_warp + me.warp_of_group][lane_idx() * kValues + i] = sums[i];
    }
    sync_threads_of(1 + me.group, threads);
    total([&](int index) {
        float sum = 0;
        for (int w = 0; w < me.group_warps(); ++w) sum += memory.sums[first_warp + w][index];
        return sum;
    });
    sync_threads_of(1 + me.group, threads);
}

inline constexpr int kAllConsumersBarrier = 15;
__device__ inline void sync_consumers() {
    sync_threads_of(kAllConsumersBarrier, kConsumers);
}

}  // namespace k3pod::kernels

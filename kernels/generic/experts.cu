// The routed experts of a frame in one pass over their weights.
//
// A pass is a shard and up to eight rows. First h = SiTU(w1 z, w3 z) of all passes, in tiles of
// eight rows of w1 and the same eight of w3; then y = w2 h, in tiles of 16 rows of w2. Blocks take
// equal, contiguous parts of the first and then of the second, so that each meets few passes and
// loads their rows once. The ring does not stop in between: while a block waits for the h of
// others, its part of w2 is already on the way.
//
// A block waits for others, so all have to run at the same time: the grid is one block for each
// multiprocessor, and whatever else holds one of those ends without waiting for this kernel.

#include <cuda_bf16.h>

#include <algorithm>

#include "common/launch.cuh"
#include "common/require.h"
#include "common/situ.cuh"
#include "common/stream.cuh"
#include "common/stream_plan.h"
#include "generic/experts_frame.cuh"
#include "generic/experts_sum.h"

namespace k3pod::kernels {
namespace {

constexpr int kGateRows = 8;  // of a tile: eight of w1 and eight of w3
constexpr int kUnits = Fp4Stream::kUnits;

struct LocalList {
    ListPart scratch[kConsumerWarps];
    PassList list;
    ExpertPass passes[kMaxLocalPasses];
};

// The shape of the ring for rows of another length: shards differ in width.
__device__ StreamShape shape_for(const StreamShape& shape, int32_t row_bytes) {
    StreamShape other = shape;
    other.row_bytes = row_bytes;
    other.num_chunks = (row_bytes + kMaxChunkBytes - 1) / kMaxChunkBytes;
    const int32_t even = (row_bytes + other.num_chunks - 1) / other.num_chunks;
    other.chunk_bytes = (even + 127) / 128 * 128;
    return other;
}

// The frame as every block sees it.
struct Frame {
    const ExpertPass* passes;
    PassList list;

    // The last pass that begins at or before `position`.
    __device__ int32_t pass_at(int64_t position, int64_t scale) const {
        int32_t low = 0, high = list.num_passes - 1;
        while (low < high) {
            const int32_t middle = (low + high + 1) / 2;
            if (passes[middle].width_before * scale <= position) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        return low;
    }
};

// Consecutive tiles of one pass.
struct Segment {
    int32_t pass, first_tile, num_tiles;
};

// This block's share of w1 and w3 (tiles of eight) or of w2 (tiles of 16 rows, as long as the
// shard is wide), as segments in order: calls use(segment).
template <class Use>
__device__ void for_each_segment(const ExpertsParams& p, const Frame& frame, bool is_second,
                                 Use use) {
    const int64_t scale = is_second ? p.args.table.latent / kTileRows : 1;
    const int64_t length = frame.list.total_width * scale;
    const int64_t begin = length * blockIdx.x / gridDim.x;
    const int64_t end = length * (blockIdx.x + 1) / gridDim.x;
    if (begin == end) return;
    for (int32_t i = frame.pass_at(begin, scale); i < frame.list.num_passes; ++i) {
        const int64_t start = frame.passes[i].width_before * scale;
        if (start >= end) return;
        const int32_t width = p.args.table.shards[frame.passes[i].shard].width;
        const int32_t of_tile = is_second ? width : kGateRows;
        const int64_t tiles = width * scale / of_tile;
        // A tile is the block's whose share its beginning lies in.
        const auto first_at = [&](int64_t position) {
            return min(tiles, (max(position - start, int64_t{0}) + of_tile - 1) / of_tile);
        };
        const int64_t first = first_at(begin);
        const int64_t count = first_at(end) - first;
        if (count > 0) use(Segment{i, static_cast<int32_t>(first), static_cast<int32_t>(count)});
    }
}

__device__ const ExpertShard& shard_of(const ExpertsParams& p, const ExpertPass& pass) {
    return p.args.table.shards[pass.shard];
}

__device__ MatrixView view_of(const ExpertMatrix& m, const ExpertShard& shard, int32_t rows,
                              int32_t cols) {
    return {shard.format, rows, cols, m.data, m.scales, m.global_scale};
}

__device__ void produce(const ExpertsParams& p, const Frame& frame, StreamMemory& memory) {
    RingPosition at;
    const int32_t latent_bytes = p.args.table.latent / 2;
    for_each_segment(p, frame, false, [&](const Segment& s) {
        const ExpertShard& shard = shard_of(p, frame.passes[s.pass]);
        const std::byte *w1 = shard.w1.data, *w3 = shard.w3.data;
        produce_tiles(
            memory, p.shape, s.num_tiles,
            [&](int tile, int row) {
                const int64_t at_row = (s.first_tile + tile) * kGateRows + row % kGateRows;
                return (row < kGateRows ? w1 : w3) + at_row * latent_bytes;
            },
            at);
    });
    for_each_segment(p, frame, true, [&](const Segment& s) {
        const ExpertShard& shard = shard_of(p, frame.passes[s.pass]);
        const std::byte* w2 = shard.w2.data;
        const int32_t row_bytes = shard.width / 2;
        produce_tiles(
            memory, shape_for(p.shape, row_bytes), s.num_tiles,
            [&](int tile, int row) {
                const int64_t at_row = (s.first_tile + tile) * kTileRows + row;
                return w2 + at_row * row_bytes;
            },
            at);
    });
}

// Puts bf16 rows of `cols` values into columns of the operand; row(i) is the i-th row's values.
template <class Row>
__device__ void load_columns(std::byte* operand, int32_t num_columns, int32_t cols, Row row) {
    const int32_t column_bytes = operand_column_bytes(kUnits, cols / 2);
    const int32_t units = Operand<kUnits>::num_units(cols / 2);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < units * num_columns; i += kConsumers) {
        const int32_t column = i / units;
        const int32_t unit = i % units;
        uint4 values = {};
        if (unit * 8 < cols) values = __ldcg(reinterpret_cast<const uint4*>(row(column)) + unit);
        // (0, 1) (2, 3) (4, 5) (6, 7) becomes (0, 4) (1, 5) (2, 6) (3, 7): see widen_e2m1x8.
        const uint4 paired = {
            __byte_perm(values.x, values.z, 0x5410), __byte_perm(values.x, values.z, 0x7632),
            __byte_perm(values.y, values.w, 0x5410), __byte_perm(values.y, values.w, 0x7632)};
        std::byte* at = operand + column * column_bytes + Operand<kUnits>::unit_offset(unit);
        *reinterpret_cast<uint4*>(at) = paired;
    }
}

__device__ OperandLane lane_of(const std::byte* operand, const Consumer& me, int32_t num_columns,
                               int32_t row_bytes, bool has_low) {
    const int32_t column_bytes = operand_column_bytes(kUnits, row_bytes);
    const int32_t column = min(me.row, num_columns - 1);
    const std::byte* high = operand + column * column_bytes + me.lane_of_quad * 16;
    return {.high = high, .low = has_low ? high + num_columns * column_bytes : nullptr};
}

// Where the high part of an entry's h begins; the low part is max_width behind it.
__device__ __nv_bfloat16* h_of(const ExpertsParams& p, const ExpertPass& pass, int32_t column) {
    const int64_t place = p.place(pass.first_entry + column, pass.shard_of_expert);
    return p.space.h + place * 2 * p.args.table.max_width;
}

// h of eight rows of the shard and up to eight entries.
template <class F>
__device__ __noinline__ void gate_segment(const ExpertsParams& p, const ExpertPass& pass,
                                          const Segment& s, StreamMemory& memory,
                                          RingPosition& at) {
    const int32_t latent = p.args.table.latent;
    const ExpertShard& shard = shard_of(p, pass);
    const MatrixView w1 = view_of(shard.w1, shard, shard.width, latent);
    const MatrixView w3 = view_of(shard.w3, shard, shard.width, latent);
    const int32_t last_row = p.args.max_rows - 1;
    load_columns(memory.operand(), pass.count, latent, [&](int32_t column) {
        const int32_t row = p.args.entries[pass.first_entry + column].row;
        return p.args.latents + int64_t{min(row, last_row)} * latent;
    });
    sync_consumers();
    const Consumer me(p.shape);
    const auto scale_row = [&](int tile, int row, int lane_of_quad) {
        const int32_t at_row = (s.first_tile + tile) * kGateRows + row % kGateRows;
        return F::scale_row(row < kGateRows ? w1 : w3, at_row, lane_of_quad);
    };
    const auto finish = [&](int tile, const float(&sums)[4]) {
        sum_over_group(memory, me, sums, [&](auto sum_at) {
            const int thread = me.thread_of_group();
            const int column = thread / kGateRows;
            if (column >= pass.count) return;
            const int lane = thread % kGateRows * 4 + column / 2;
            const float gate = sum_at(lane * 4 + column % 2) * F::unscale(w1);
            const float up = sum_at(lane * 4 + 2 + column % 2) * F::unscale(w3);
            const SplitBf16 h = split_bf16(situ(gate, up, p.args.beta, p.args.linear_beta));
            const int32_t row = (s.first_tile + tile) * kGateRows + thread % kGateRows;
            __nv_bfloat16* to = h_of(p, pass, column) + row;
            to[0] = h.high;
            to[p.args.table.max_width] = h.low;
        });
    };
    const OperandLane operand = lane_of(memory.operand(), me, pass.count, latent / 2, false);
    consume_tiles<F>(memory, p.shape, s.num_tiles, operand, scale_row, finish, at);
}

// y of 16 rows of w2 and up to eight entries.
template <class F>
__device__ __noinline__ void down_segment(const ExpertsParams& p, const ExpertPass& pass,
                                          const Segment& s, StreamMemory& memory,
                                          RingPosition& at) {
    const int32_t latent = p.args.table.latent;
    const ExpertShard& shard = shard_of(p, pass);
    const MatrixView w2 = view_of(shard.w2, shard, latent, shard.width);
    load_columns(memory.operand(), 2 * pass.count, shard.width, [&](int32_t column) {
        const bool is_low = column >= pass.count;
        return h_of(p, pass, is_low ? column - pass.count : column) +
               (is_low ? p.args.table.max_width : 0);
    });
    sync_consumers();
    const StreamShape shape = shape_for(p.shape, shard.width / 2);
    const Consumer me(shape);
    const auto scale_row = [&](int tile, int row, int lane_of_quad) {
        return F::scale_row(w2, (s.first_tile + tile) * kTileRows + row, lane_of_quad);
    };
    const auto finish = [&](int tile, const float(&sums)[4]) {
        sum_over_group(memory, me, sums, [&](auto sum_at) {
            const int thread = me.thread_of_group();
            const int column = thread / kTileRows;
            if (column >= pass.count) return;
            const int row = thread % kTileRows;
            const int lane = row % 8 * 4 + column / 2;
            const float value = sum_at(lane * 4 + row / 8 * 2 + column % 2) * F::unscale(w2);
            const int64_t place = p.place(pass.first_entry + column, pass.shard_of_expert);
            p.space.y[place * latent + (s.first_tile + tile) * kTileRows + row] = value;
        });
    };
    const OperandLane operand = lane_of(memory.operand(), me, pass.count, shard.width / 2, true);
    consume_tiles<F>(memory, shape, s.num_tiles, operand, scale_row, finish, at);
}

__device__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Until all tiles of the pass's h are written. They were begun before this block came here; what
// takes two seconds will never end, and a trap says so.
__device__ void wait_for_h(const int32_t* tiles_done, int32_t num_tiles) {
    constexpr uint64_t kLimitNs = 2'000'000'000;
    const uint64_t begin = nanoseconds();
    for (;;) {
        int32_t done;
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                     : "=r"(done)
                     : "l"(tiles_done)
                     : "memory");
        if (done == num_tiles) return;
        if (nanoseconds() - begin > kLimitNs) __trap();
        __nanosleep(20);
    }
}

__device__ void consume(const ExpertsParams& p, const Frame& frame, StreamMemory& memory) {
    RingPosition at;
    for_each_segment(p, frame, false, [&](const Segment& s) {
        const ExpertPass pass = frame.passes[s.pass];
        if (shard_of(p, pass).format == WeightFormat::kMxfp4) {
            gate_segment<Mxfp4Stream>(p, pass, s, memory, at);
        } else {
            gate_segment<Nvfp4Stream>(p, pass, s, memory, at);
        }
        __threadfence();
        sync_consumers();
        if (threadIdx.x == 0) atomicAdd(&p.space.tiles_done[s.pass], s.num_tiles);
    });
    for_each_segment(p, frame, true, [&](const Segment& s) {
        const ExpertPass pass = frame.passes[s.pass];
        const ExpertShard& shard = shard_of(p, pass);
        if (threadIdx.x == 0) wait_for_h(&p.space.tiles_done[s.pass], shard.width / kGateRows);
        sync_consumers();
        if (shard.format == WeightFormat::kMxfp4) {
            down_segment<Mxfp4Stream>(p, pass, s, memory, at);
        } else {
            down_segment<Nvfp4Stream>(p, pass, s, memory, at);
        }
        sync_consumers();
    });
}

template <bool kIsListed>
__global__ void __launch_bounds__(kStreamThreads, 1)
    grouped_experts_kernel(const __grid_constant__ ExpertsParams p) {
    extern __shared__ __align__(128) std::byte shared[];
    __shared__ LocalList local;
    auto& memory = *reinterpret_cast<StreamMemory*>(shared);
    init_ring(memory, p.shape, p.shape.warps_per_group());
    wait_for_previous();
    if constexpr (!kIsListed) {
        if (warp_idx() < kConsumerWarps) {
            const PassList list = list_passes(p, local.passes, local.scratch);
            if (threadIdx.x == 0) local.list = list;
        }
        __syncthreads();
    }
    const Frame frame =
        kIsListed ? Frame{p.space.passes, *p.space.list} : Frame{local.passes, local.list};
    if (frame.list.num_passes == 0) return;
    if (warp_idx() < kConsumerWarps) {
        consume(p, frame, memory);
    } else {
        produce(p, frame, memory);
    }
}

__global__ void __launch_bounds__(kListThreads)
    list_passes_kernel(const __grid_constant__ ExpertsParams p) {
    __shared__ ListPart scratch[kConsumerWarps];
    wait_for_previous();
    const PassList list = list_passes(p, p.space.passes, scratch);
    if (threadIdx.x == 0) *p.space.list = list;
}

int64_t aligned(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

// Places the parts of the workspace and returns its size.
int64_t lay_out(const ExpertTable& table, int64_t max_entries, std::byte* base,
                ExpertsWorkspace* space) {
    const int64_t places = max_entries * table.max_shards_per_expert;
    int64_t at = 0;
    const auto take = [&](auto*& part, int64_t count) {
        part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(base + at);
        at += aligned(count * static_cast<int64_t>(sizeof(*part)));
    };
    take(space->tiles_done, places);
    take(space->list, 1);
    take(space->passes, places);
    take(space->h, places * 2 * table.max_width);
    take(space->y, places * table.latent);
    return at;
}

// Shared memory: the operand for as many rows together as fit beside a ring.
Result<LaunchShape> plan(ExpertsParams& p) {
    K3POD_ASSIGN(const DeviceLimits limits, current_device_limits());
    const ExpertTable& table = p.args.table;
    StreamShape& shape = p.shape;
    const int32_t longest = std::min(kMaxChunkBytes, std::max(table.latent, table.max_width) / 2);
    shape.row_bytes = table.latent / 2;
    shape.num_chunks = (shape.row_bytes + kMaxChunkBytes - 1) / kMaxChunkBytes;
    const int32_t even = (shape.row_bytes + shape.num_chunks - 1) / shape.num_chunks;
    shape.chunk_bytes = (even + 127) / 128 * 128;
    shape.stage_bytes = kTileRows * ((longest + 127) / 128 * 128 + kRowPadBytes);
    shape.num_groups = 4;
    const int32_t of_row = std::max(operand_column_bytes(kUnits, table.latent / 2),
                                    2 * operand_column_bytes(kUnits, table.max_width / 2));
    constexpr int64_t kStatic = sizeof(LocalList) + 1024;  // 1 KiB is the driver's
    const int64_t room = limits.shared_bytes - kStatic - kStreamMemoryBytes;
    const int32_t min_stages = shape.num_groups;  // as plan_stream() has it
    const int64_t rows = (room - min_stages * shape.stage_bytes) / of_row;
    K3POD_TRY(require(rows >= 1, "grouped_experts", "shared memory of a block", limits.shared_bytes,
                      "enough for four stages and a row"));
    p.pass_rows = static_cast<int32_t>(std::min<int64_t>(rows, kMaxPassRows));
    shape.operand_bytes = (p.pass_rows * of_row + 127) / 128 * 128;
    shape.num_stages = static_cast<int32_t>(
        std::min<int64_t>((room - shape.operand_bytes) / shape.stage_bytes, kMaxStages));
    return LaunchShape{.grid = static_cast<unsigned>(limits.num_sms),
                       .block = kStreamThreads,
                       .shared_bytes = kStreamMemoryBytes + shape.operand_bytes +
                                       int64_t{shape.num_stages} * shape.stage_bytes,
                       .overlaps_previous = true};
}

Status check(const GroupedExpertsArgs& args) {
    constexpr const char* kName = "grouped_experts";
    const ExpertTable& table = args.table;
    K3POD_TRY(require(args.max_rows > 0, kName, "max_rows", args.max_rows, "above 0"));
    K3POD_TRY(require(args.max_entries > 0, kName, "max_entries", args.max_entries, "above 0"));
    K3POD_TRY(require(table.latent > 0 && table.latent % 32 == 0, kName, "latent", table.latent,
                      "a multiple of 32"));
    K3POD_TRY(require(table.max_width > 0 && table.max_width % 32 == 0, kName, "max_width",
                      table.max_width, "a multiple of 32"));
    K3POD_TRY(require(table.max_shards_per_expert > 0, kName, "max_shards_per_expert",
                      table.max_shards_per_expert, "above 0"));
    K3POD_TRY(
        require(args.beta > 0 && args.linear_beta > 0, kName, "SiTU's smaller beta", 0, "above 0"));
    for (const void* pointer :
         {static_cast<const void*>(table.shards), static_cast<const void*>(table.first_shard),
          static_cast<const void*>(args.num_rows), static_cast<const void*>(args.num_entries),
          static_cast<const void*>(args.latents), static_cast<const void*>(args.entries),
          static_cast<const void*>(args.workspace), static_cast<const void*>(args.out)}) {
        K3POD_TRY(require_pointer(pointer, kName, "an argument"));
    }
    return Status::ok();
}

}  // namespace

int64_t grouped_experts_workspace_bytes(const ExpertTable& table, int32_t, int32_t max_entries) {
    ExpertsWorkspace space;
    return lay_out(table, max_entries, nullptr, &space);
}

Status grouped_experts(const GroupedExpertsArgs& args, CudaStream stream) {
    constexpr const char* kName = "grouped_experts";
    K3POD_TRY(check(args));
    ExpertsParams p;
    p.args = args;
    lay_out(args.table, args.max_entries, args.workspace, &p.space);
    p.max_passes = args.max_entries * args.table.max_shards_per_expert;
    K3POD_ASSIGN(const LaunchShape shape, plan(p));
    const bool is_listed = p.max_passes > kMaxLocalPasses;
    if (is_listed) {
        const LaunchShape one{.block = kListThreads, .overlaps_previous = true};
        K3POD_TRY(launch("list_passes", list_passes_kernel, one, stream, p));
    }
    const auto kernel = is_listed ? grouped_experts_kernel<true> : grouped_experts_kernel<false>;
    K3POD_TRY(allow_shared(kName, kernel, shape.shared_bytes));
    K3POD_TRY(launch(kName, kernel, shape, stream, p));
    return sum_experts(p, stream);
}

}  // namespace k3pod::kernels

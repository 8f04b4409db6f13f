// The routed experts of a frame, every weight byte once.
//
// A pass is a shard and up to eight rows. The first kernel computes h = SiTU(w1 z, w3 z) of all
// passes, in tiles of eight rows of w1 and the same eight of w3; the second y = w2 h, in tiles of
// 16 rows of w2. Blocks take equal, contiguous parts of either, so that each meets few passes and
// loads their rows once. The second begins while the first ends: its w2 is on the way before the
// last h is written.

#include <algorithm>

#include "common/launch.cuh"
#include "common/operand_io.cuh"
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
constexpr int kSumValues = 4;
// Room for eight rows is worth more than another step under way.
constexpr int kExpertStages = 2;

struct LocalList {
    ListPart scratch[kMaxStreamWarps];
    PassList list;
    ExpertPass passes[kMaxLocalPasses];
};

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
    int32_t pass = 0, first_tile = 0, num_tiles = 0;
};

// This block's share of w1 and w3 (tiles of eight) or of w2 (tiles of 16 rows, as long as the
// shard is wide), segment by segment.
template <bool kIsDown>
class Segments {
  public:
    __device__ Segments(const ExpertsParams& p, const Frame& frame)
        : p_(p), frame_(frame), scale_(kIsDown ? p.args.table.latent / kTileRows : 1) {
        const int64_t length = frame.list.total_width * scale_;
        begin_ = length * blockIdx.x / gridDim.x;
        end_ = length * (blockIdx.x + 1) / gridDim.x;
        if (length > 0) pass_ = frame.pass_at(begin_, scale_);
    }
    __device__ bool next(Segment& segment) {
        for (; pass_ < frame_.list.num_passes; ++pass_) {
            const ExpertPass& pass = frame_.passes[pass_];
            const int64_t start = pass.width_before * scale_;
            if (start >= end_) return false;
            const int32_t width = p_.args.table.shards[pass.shard].width;
            const int32_t of_tile = kIsDown ? width : kGateRows;
            const int64_t tiles = width * scale_ / of_tile;
            // A tile is the block's whose share its beginning lies in.
            const auto first_at = [&](int64_t position) {
                return min(tiles, (max(position - start, int64_t{0}) + of_tile - 1) / of_tile);
            };
            const int64_t first = first_at(begin_);
            const int64_t count = first_at(end_) - first;
            if (count == 0) continue;
            segment = {pass_++, static_cast<int32_t>(first), static_cast<int32_t>(count)};
            return true;
        }
        return false;
    }

  private:
    const ExpertsParams& p_;
    const Frame& frame_;
    int64_t scale_, begin_, end_;
    int32_t pass_ = 0;
};

__device__ const ExpertShard& shard_of(const ExpertsParams& p, const ExpertPass& pass) {
    return p.args.table.shards[pass.shard];
}

__device__ const std::byte* scales_of(WeightFormat format, const ExpertMatrix& m, int32_t row,
                                      int32_t cols, int lane_of_quad) {
    const MatrixView view{format, 0, cols, m.data, m.scales, m.global_scale};
    return format == WeightFormat::kMxfp4 ? Mxfp4Stream::scale_row(view, row, lane_of_quad)
                                          : Nvfp4Stream::scale_row(view, row, lane_of_quad);
}

// What a lane takes of tile `tile` of a shard; row: g.
template <bool kIsDown>
__device__ LaneRows rows_of_tile(const ExpertsParams& p, const ExpertShard& shard, int32_t tile,
                                 const StreamWarp& me) {
    const int32_t cols = kIsDown ? shard.width : p.args.table.latent;
    LaneRows rows;
    rows.row_bytes = cols / 2;
    rows.scale_step =
        shard.format == WeightFormat::kMxfp4 ? Mxfp4Stream::kScaleStep : Nvfp4Stream::kScaleStep;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const ExpertMatrix& m = kIsDown ? shard.w2 : i == 0 ? shard.w1 : shard.w3;
        const int32_t row = kIsDown ? tile * kTileRows + me.row + 8 * i : tile * kGateRows + me.row;
        rows.data[i] = m.data + int64_t{row} * rows.row_bytes + me.lane_of_quad * 16;
        rows.scales[i] = scales_of(shard.format, m, row, cols, me.lane_of_quad);
    }
    const StepRange all{0, (rows.row_bytes + kStepBytes - 1) / kStepBytes};
    rows.row_bytes -= me.lane_of_quad * 16;
    rows.steps = steps_of_warp(me, p.group_warps[kIsDown], all);
    return rows;
}

// The tiles of a warp, through all segments.
template <bool kIsDown>
class WarpTiles {
  public:
    __device__ WarpTiles(const ExpertsParams& p, const Frame& frame, const StreamWarp& me)
        : p_(p), frame_(frame), me_(me), segments_(p, frame), tile_(me.group) {}

    __device__ bool next(LaneRows& rows) {
        while (tile_ >= segment_.num_tiles) {
            if (!segments_.next(segment_)) return false;
            tile_ = me_.group;
        }
        const ExpertShard& shard = shard_of(p_, frame_.passes[segment_.pass]);
        rows = rows_of_tile<kIsDown>(p_, shard, segment_.first_tile + tile_, me_);
        for (const std::byte*& scales : rows.scales) scales = Fp4Stream::word_of(scales);
        tile_ += p_.warps / p_.group_warps[kIsDown];
        return true;
    }

  private:
    const ExpertsParams& p_;
    const Frame& frame_;
    const StreamWarp me_;
    Segments<kIsDown> segments_;
    Segment segment_;
    int32_t tile_;
};

// Where an entry's h begins.
__device__ float* h_of(const ExpertsParams& p, const ExpertPass& pass, int32_t column) {
    const int64_t place = p.place(pass.first_entry + column, pass.shard_of_expert);
    return p.space.h + place * p.args.table.max_width;
}

// The activations of a pass's entries; h has a second part.
template <bool kIsDown>
struct PassTokens {
    const ExpertsParams& p;
    const ExpertPass& pass;
    std::byte* operand;
    int32_t column_bytes;
    int32_t low_offset;
    __device__ PassTokens(const ExpertsParams& params, const ExpertPass& of_pass, int32_t steps,
                          std::byte* memory)
        : p(params),
          pass(of_pass),
          operand(memory),
          column_bytes(operand_column_bytes(kUnits, steps)),
          low_offset(kIsDown ? pass.count * column_bytes : 0) {}
    __device__ DeviceRows row(int32_t column) const {
        if constexpr (kIsDown) return {.f32 = h_of(p, pass, column)};
        const int32_t row = p.args.entries[pass.first_entry + column].row;
        return {.bf16 =
                    p.args.latents + int64_t{min(row, p.args.max_rows - 1)} * p.args.table.latent};
    }
    __device__ std::byte* at(int32_t column) const { return operand + column * column_bytes; }
};

__device__ float global_scale(const ExpertShard& shard, const ExpertMatrix& m) {
    return kFp4Unshift * (shard.format == WeightFormat::kNvfp4 ? m.global_scale : 1.0f);
}

// h of eight rows of a shard, or y of 16 rows of w2, for the pass's entries.
template <bool kIsDown>
__device__ void write_tile(const ExpertsParams& p, const ExpertPass& pass, int32_t tile, int group,
                           const RoundSums<kSumValues>& sums, int thread) {
    constexpr int kRows = kIsDown ? kTileRows : kGateRows;
    const int column = thread / kRows;
    const int row = thread % kRows;
    const int lane = row % 8 * 4 + column / 2;
    const ExpertShard& shard = shard_of(p, pass);
    if constexpr (kIsDown) {
        const float y = sums.total(group, lane, row / 8 * 2 + column % 2);
        const int64_t place = p.place(pass.first_entry + column, pass.shard_of_expert);
        p.space.y[place * p.args.table.latent + tile * kTileRows + row] =
            y * global_scale(shard, shard.w2);
    } else {
        const float gate = sums.total(group, lane, column % 2) * global_scale(shard, shard.w1);
        const float up = sums.total(group, lane, 2 + column % 2) * global_scale(shard, shard.w3);
        h_of(p, pass, column)[tile * kGateRows + row] =
            situ(gate, up, p.args.beta, p.args.linear_beta);
    }
}

template <bool kIsDown>
__device__ OperandLane operand_lane(const ExpertPass& pass, int32_t cols, const std::byte* operand,
                                    const StreamWarp& me) {
    const int32_t steps = (cols / 2 + kStepBytes - 1) / kStepBytes;
    const int32_t column_bytes = operand_column_bytes(kUnits, steps);
    const std::byte* high =
        operand + min(me.row, pass.count - 1) * column_bytes + me.lane_of_quad * 16;
    return {.high = high, .low = kIsDown ? high + pass.count * column_bytes : nullptr};
}

template <bool kIsDown>
using ExpertStream = LaneStream<Fp4Stream, kExpertStages, WarpTiles<kIsDown>>;

template <bool kIsDown>
__device__ void add_tile(Sums<1>& sums, ExpertStream<kIsDown>& stream, const ExpertShard& shard,
                         const LaneRows& rows, const OperandLane& operand) {
    const int shifts[2] = {Fp4Stream::scale_shift(rows.scales[0]),
                           Fp4Stream::scale_shift(rows.scales[1])};
    const int32_t count = rows.steps.count();
    if (shard.format == WeightFormat::kMxfp4) {
        stream.template add_tile<Mxfp4Stream, 1>(sums, count, shifts, operand, rows.steps.begin);
    } else {
        stream.template add_tile<Nvfp4Stream, 1>(sums, count, shifts, operand, rows.steps.begin);
    }
}

template <bool kIsDown>
__device__ void run_segment(const ExpertsParams& p, const Frame& frame, const Segment& s,
                            const StreamWarp& me, std::byte* operand, TokenScales& scales,
                            ExpertStream<kIsDown>& stream, RoundSums<kSumValues>& round) {
    const ExpertPass pass = frame.passes[s.pass];
    const ExpertShard& shard = shard_of(p, pass);
    const int32_t cols = kIsDown ? shard.width : p.args.table.latent;
    const StepRange steps{0, (cols / 2 + kStepBytes - 1) / kStepBytes};
    const OperandLoader<Fp4Stream, PassTokens<kIsDown>> loader(
        PassTokens<kIsDown>(p, pass, steps.count(), operand), pass.count, cols, steps);
    loader.load(scales);
    const OperandLane lane = operand_lane<kIsDown>(pass, cols, operand, me);
    const int32_t groups = p.warps / p.group_warps[kIsDown];
    const int32_t outputs = (kIsDown ? kTileRows : kGateRows) * pass.count;
    for (int32_t i = me.group; i < s.num_tiles; i += groups) {
        const int32_t tile = s.first_tile + i;
        Sums<1> sums = {};
        add_tile<kIsDown>(sums, stream, shard, rows_of_tile<kIsDown>(p, shard, tile, me), lane);
        round.put(sums[0]);
        round.meet();
        for (int32_t at = me.warp_of_group * kWarpSize + lane_idx(); at < outputs;
             at += p.group_warps[kIsDown] * kWarpSize) {
            write_tile<kIsDown>(p, pass, tile, me.group, round, at);
        }
        round.next_round();
    }
    __syncthreads();  // the next segment's rows take the place of this one's
}

template <bool kIsDown, bool kIsListed>
__global__ void __launch_bounds__(kMaxStreamThreads, 1)
    grouped_experts_kernel(const __grid_constant__ ExpertsParams p) {
    extern __shared__ __align__(128) std::byte shared[];
    __shared__ LocalList local;
    __shared__ TokenScales scales;
    // The second kernel may begin when the frame is there and the first one runs; what it reads
    // before it waits is the frame and the weights.
    if constexpr (!kIsDown) cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    if constexpr (!kIsListed) {
        const PassList list = list_passes(p, local.passes, local.scratch);
        if (threadIdx.x == 0) local.list = list;
        __syncthreads();
    }
    const Frame frame =
        kIsListed ? Frame{p.space.passes, *p.space.list} : Frame{local.passes, local.list};
    const StreamWarp me(p.group_warps[kIsDown]);
    ExpertStream<kIsDown> stream(shared, WarpTiles<kIsDown>(p, frame, me));
    stream.start();
    if constexpr (kIsDown) cudaGridDependencySynchronize();
    std::byte* sums = shared + ring_bytes(Fp4Stream::kFormat, num_warps(), kExpertStages);
    const StreamShape shape{.warps = p.warps, .group_warps = p.group_warps[kIsDown]};
    RoundSums<kSumValues> round(sums, shape, me);
    Segments<kIsDown> segments(p, frame);
    for (Segment s; segments.next(s);) {
        run_segment<kIsDown>(p, frame, s, me, sums + sums_bytes(kSumValues, num_warps()), scales,
                             stream, round);
    }
}

__global__ void __launch_bounds__(kMaxStreamThreads)
    list_passes_kernel(const __grid_constant__ ExpertsParams p) {
    __shared__ ListPart scratch[kMaxStreamWarps];
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
    take(space->list, 1);
    take(space->passes, places);
    take(space->h, places * table.max_width);
    take(space->y, places * table.latent);
    return at;
}

// Rows of a pass: as many as fit beside the rings.
Result<LaunchShape> plan(ExpertsParams& p) {
    K3POD_ASSIGN(const DeviceLimits limits, current_device_limits());
    const ExpertTable& table = p.args.table;
    p.warps = stream_warps(limits.shared_bytes);
    const auto steps_of = [](int32_t cols) { return (cols / 2 + kStepBytes - 1) / kStepBytes; };
    const int64_t of_row =
        std::max<int64_t>(operand_column_bytes(kUnits, steps_of(table.latent)),
                          2 * operand_column_bytes(kUnits, steps_of(table.max_width)));
    constexpr int64_t kStatic =
        sizeof(LocalList) + sizeof(TokenScales) + 1024;  // 1 KiB is the driver's
    const int64_t beside =
        ring_bytes(Fp4Stream::kFormat, p.warps, kExpertStages) + sums_bytes(kSumValues, p.warps);
    const int64_t rows = (limits.shared_bytes - kStatic - beside) / of_row;
    K3POD_TRY(require(rows >= 1, "grouped_experts", "shared memory of a block", limits.shared_bytes,
                      "enough for the rings and a row"));
    p.pass_rows = static_cast<int32_t>(std::min<int64_t>({rows, kMaxPassRows, p.args.max_rows}));
    // As for 16 experts: what a frame brings is not known here.
    constexpr int32_t kUsualExperts = 16;
    const auto tiles_of_block = [&](int32_t tiles) {
        return (int64_t{kUsualExperts} * tiles + limits.num_sms - 1) / limits.num_sms;
    };
    p.group_warps[0] = group_warps_for(p.warps, tiles_of_block(table.max_width / kGateRows),
                                       steps_of(table.latent));
    p.group_warps[1] = group_warps_for(p.warps, tiles_of_block(table.latent / kTileRows),
                                       steps_of(table.max_width));
    return LaunchShape{.grid = static_cast<unsigned>(limits.num_sms),
                       .block = static_cast<unsigned>(p.warps * kWarpSize),
                       .shared_bytes = beside + p.pass_rows * of_row,
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
        const LaunchShape one{.block = kMaxStreamThreads, .overlaps_previous = true};
        K3POD_TRY(launch("list_passes", list_passes_kernel, one, stream, p));
    }
    const auto gate =
        is_listed ? grouped_experts_kernel<false, true> : grouped_experts_kernel<false, false>;
    const auto down =
        is_listed ? grouped_experts_kernel<true, true> : grouped_experts_kernel<true, false>;
    for (const auto kernel : {gate, down}) {
        K3POD_TRY(allow_shared(kName, kernel, shape.shared_bytes));
        K3POD_TRY(launch(kName, kernel, shape, stream, p));
    }
    return sum_experts(p, stream);
}

}  // namespace k3pod::kernels

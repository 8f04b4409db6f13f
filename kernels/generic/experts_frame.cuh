#pragma once
// What the kernels of grouped_experts share: the frame, and its work as a list of passes.

#include <cstdint>

#include "common/block.cuh"
#include "common/stream_shape.h"
#include "k3pod/kernels/experts.h"

namespace k3pod::kernels {

inline constexpr int kMaxPassRows = 8;  // the columns of an m16n8k16
// Frames of up to so many passes are listed by every block for itself.
inline constexpr int kMaxLocalPasses = 256;

// One shard and the rows that go through it together. Passes lie one behind the other on a line as
// long as all their widths, which is what the blocks share out.
struct ExpertPass {
    int32_t shard;
    int32_t shard_of_expert;
    int32_t first_entry;
    int16_t count;  // entries, at most pass_rows
    int16_t num_shards;
    int32_t width_before;  // on the line
};

struct PassList {
    int32_t num_passes;
    int32_t total_width;
};

// The workspace.
struct ExpertsWorkspace {
    PassList* list;      // of frames that are not listed by the blocks
    ExpertPass* passes;  // [max_passes]
    float* h;            // [max_entries * max_shards][max_width]
    float* y;            // [max_entries * max_shards][L]
};

struct ExpertsParams {
    GroupedExpertsArgs args;
    ExpertsWorkspace space;
    int32_t pass_rows = 0;
    int32_t max_passes = 0;
    int32_t warps = 1;                // of a block
    int32_t group_warps[2] = {1, 1};  // that share a tile: of w1 and w3, of w2

    __device__ int32_t rows() const { return min(*args.num_rows, args.max_rows); }
    __device__ int32_t num_entries() const { return min(*args.num_entries, args.max_entries); }
    __device__ const int32_t* first_shards() const {
        const int64_t layer = args.layer == nullptr ? 0 : *args.layer;
        return args.table.first_shard + layer * args.table.num_experts;
    }
    // Where an entry's h and y are, for one of its expert's shards.
    __device__ int64_t place(int32_t entry, int32_t shard_of_expert) const {
        return int64_t{entry} * args.table.max_shards_per_expert + shard_of_expert;
    }
};

// What one entry adds to the list: nothing unless it is the first of its expert.
struct ListPart {
    int32_t num_passes = 0;
    int32_t width = 0;
};

__device__ inline ListPart add_parts(const ListPart& a, const ListPart& b) {
    return {a.num_passes + b.num_passes, a.width + b.width};
}

// Sum of the parts of lower threads; total: of all. All threads of the block; scratch: one a
// warp.
__device__ inline ListPart parts_before(const ListPart& part, ListPart* scratch, ListPart& total) {
    ListPart sum = part;
#pragma unroll
    for (int offset = 1; offset < kWarpSize; offset *= 2) {
        const ListPart other = {__shfl_up_sync(kAllLanes, sum.num_passes, offset),
                                __shfl_up_sync(kAllLanes, sum.width, offset)};
        if (lane_idx() >= offset) sum = add_parts(sum, other);
    }
    if (lane_idx() == kWarpSize - 1) scratch[warp_idx()] = sum;
    __syncthreads();
    ListPart before = {};
    total = {};
    for (int w = 0; w < num_warps(); ++w) {
        if (w < warp_idx()) before = add_parts(before, scratch[w]);
        total = add_parts(total, scratch[w]);
    }
    __syncthreads();
    return add_parts(before, {sum.num_passes - part.num_passes, sum.width - part.width});
}

// The entries of one expert, beginning at `first`.
struct EntryRun {
    int32_t first = 0, count = 0;
    int32_t first_shard = 0, num_shards = 0;

    __device__ EntryRun(const ExpertsParams& p, const int32_t* first_shards, int32_t num_entries,
                        int32_t i)
        : first(i) {
        if (i >= num_entries) return;
        const wire::WireEntry* entries = p.args.entries;
        const int32_t expert = entries[i].expert;
        if (expert >= p.args.table.num_experts) return;
        if (i > 0 && entries[i - 1].expert == expert) return;
        first_shard = first_shards[expert];
        num_shards = first_shards[expert + 1] - first_shard;
        for (count = 1; i + count < num_entries && entries[i + count].expert == expert;) ++count;
    }
    __device__ int32_t num_cuts(int32_t pass_rows) const {
        return (count + pass_rows - 1) / pass_rows;
    }
    __device__ ListPart part(const ExpertsParams& p) const {
        ListPart part;
        const int32_t cuts = num_cuts(p.pass_rows);
        for (int s = 0; s < num_shards; ++s) {
            part.width += cuts * p.args.table.shards[first_shard + s].width;
        }
        part.num_passes = cuts * num_shards;
        return part;
    }
    __device__ void write(const ExpertsParams& p, ExpertPass* passes, ListPart before) const {
        for (int s = 0; s < num_shards; ++s) {
            for (int c = 0; c < num_cuts(p.pass_rows); ++c) {
                const int32_t begin = c * p.pass_rows;
                passes[before.num_passes++] = {
                    .shard = first_shard + s,
                    .shard_of_expert = s,
                    .first_entry = first + begin,
                    .count = static_cast<int16_t>(min(p.pass_rows, count - begin)),
                    .num_shards = static_cast<int16_t>(num_shards),
                    .width_before = before.width};
                before.width += p.args.table.shards[first_shard + s].width;
            }
        }
    }
};

// Lists the frame's passes, in the order of the entries. All threads of the block together.
__device__ inline PassList list_passes(const ExpertsParams& p, ExpertPass* passes,
                                       ListPart* scratch) {
    const int32_t num_entries = p.num_entries();
    const int32_t* first_shards = p.first_shards();
    ListPart listed;
    for (int32_t base = 0; base < num_entries; base += static_cast<int32_t>(blockDim.x)) {
        const EntryRun run(p, first_shards, num_entries, base + static_cast<int32_t>(threadIdx.x));
        ListPart total;
        const ListPart before = parts_before(run.part(p), scratch, total);
        run.write(p, passes, add_parts(listed, before));
        listed = add_parts(listed, total);
    }
    return {listed.num_passes, listed.width};
}

}  // namespace k3pod::kernels

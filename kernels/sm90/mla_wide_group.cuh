#pragma once
// What a group of four warps does with the tiles: scores, softmax, output.

#include "common/block.cuh"
#include "common/bulk_copy.cuh"
#include "common/mma.cuh"
#include "sm90/mla_wide_tile.cuh"

namespace k3pod::kernels {

// What a thread of a group knows about itself: computed anew wherever it is asked, so that it takes
// no registers in between.
__device__ inline int thread_now() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}
struct Lane {
    int group, warp, lane, g, t;
    __device__ Lane() {
        const int thread = thread_now();
        group = thread / kGroupThreads;
        warp = thread / kWarpSize % kGroupWarps;
        lane = thread % kWarpSize;
        g = lane / 4;
        t = lane % 4;
    }
};

__device__ inline void sync_group() {
    sync_threads_of(1 + thread_now() / kGroupThreads, kGroupThreads);
}

// The same, and whether `mine` holds for any thread of the group.
__device__ inline bool sync_group_or(bool mine) {
    int any;
    asm volatile(
        "{\n"
        ".reg .pred mine, any;\n"
        "setp.ne.b32 mine, %1, 0;\n"
        "bar.red.or.pred any, %2, %3, mine;\n"
        "selp.b32 %0, 1, 0, any;\n"
        "}\n"
        : "=r"(any)
        : "r"(mine ? 1 : 0), "r"(1 + thread_now() / kGroupThreads), "n"(kGroupThreads)
        : "memory");
    return any != 0;
}

// The group's queries, each row's eighths where products look for them.
__device__ inline void load_queries(const MlaAttendArgs& args, Shared& shared) {
    constexpr int kPieces = kWidth / 8;
    const Lane lane;
    const Bf16* from =
        args.latent_q + (shared.work.first_query + lane.group * kGroupHeads) * kWidth;
#pragma unroll 9  // as many are on their way together
    for (int i = thread_now() % kGroupThreads; i < kGroupHeads * kPieces; i += kGroupThreads) {
        const int row = i / kPieces;
        const int piece = i % kPieces;
        const int box = piece < kLatentBoxes * 8 ? piece / 8 + 1 : 0;
        Bf16* to = shared.q[box][lane.group * kGroupHeads + row] + (piece % 8 ^ row % 8) * 8;
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + i * 8);
    }
    publish_to_products();
    sync_group();
}

// A warp is done with a box: one of those that the copier waits for.
__device__ inline void release_box(Shared& shared, int box) {
    if (thread_now() % kWarpSize == 0) barrier_arrive(&shared.empty[slot_of(box)]);
}

// scores^T times log2(e) of a part of the heads, for the tile whose boxes begin at first_box.
// `left` positions of it are visible, the rest get -inf.
__device__ inline void score_tile(Shared& shared, int first_box, int part, int left,
                                  float (&scores)[kScoreFloats]) {
    uint32_t queries =
        operand_at(shared.q[0][thread_now() / kGroupThreads * kGroupHeads + part * kScoreHeads]);
#pragma unroll 1
    for (int i = 0; i < kBoxes; ++i) {
        const int slot = slot_of(first_box + i);
        barrier_wait(&shared.full[slot], round_of(first_box + i));
        begin_products();
        const uint32_t keys = operand_at(shared.ring[slot]);
#pragma unroll
        for (int k = 0; k < kDepthSteps; ++k) {
            multiply_async<false>(scores, keys + k * 2, queries + k * 2, i + k > 0);
        }
        queries += sizeof(shared.q[0]) / 16;
    }
    commit_products();
    wait_for_products<0>();
    const Lane lane;
    const int first = lane.warp * 16 + lane.g;
#pragma unroll
    for (int i = 0; i < kScoreFloats; ++i) {
        const bool is_visible = first + i / 2 % 2 * 8 < left;
        scores[i] = is_visible ? scores[i] * kLog2e : -INFINITY;
    }
}

// Positions behind the last are whatever the page holds, NaN too, and 0 * NaN is no 0.
__device__ inline void clear_rows(Shared& shared, int first_box, int first_row) {
    for (int box = first_box + 1; box < first_box + kBoxes; ++box) {
        uint4* rows = reinterpret_cast<uint4*>(shared.ring[slot_of(box)][first_row]);
        for (int i = thread_now() % kGroupThreads; i < (kTokens - first_row) * 8;
             i += kGroupThreads) {
            rows[i] = {0, 0, 0, 0};
        }
    }
}

__device__ inline float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two 8x8 matrices, each to eight rows of 16 bytes, transposed; lane i < 16 has the address of row
// i % 8 of matrix i / 8.
__device__ inline void store_transposed(Bf16* row, uint32_t first, uint32_t second) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
        "r"(first), "r"(second)
        : "memory");
}

// Probabilities of the tile relative to the reference, in bf16. Whether a score is too far above
// it.
__device__ inline bool weigh_tile(Shared& shared, int first_box, int left) {
    bool is_high = false;
#pragma unroll 1
    for (int part = 0; part < kScoreParts; ++part) {
        float scores[kScoreFloats];
        score_tile(shared, first_box, part, left, scores);
        const Lane lane;
        const int first_head = part * kScoreHeads;
        const float* reference = shared.reference[lane.group] + first_head + 2 * lane.t;
        const int eighth = (lane.warp * 2 + lane.lane / 8 % 2) ^ lane.lane % 8;
        Bf16* p = shared.p[lane.group][first_head + lane.lane % 8] + eighth * 8;
#pragma unroll
        for (int j = 0; j < kScoreHeads / 8; ++j) {
            const float even = reference[8 * j], odd = reference[8 * j + 1];
            const float* s = scores + 4 * j;
            const float most = fmaxf(fmaxf(s[0], s[2]) - even, fmaxf(s[1], s[3]) - odd);
            is_high = is_high || most > kRaiseAbove;
            store_transposed(
                p + j * 8 * kTokens,
                pack_bf16x2(exp2_approximate(s[0] - even), exp2_approximate(s[1] - odd)),
                pack_bf16x2(exp2_approximate(s[2] - even), exp2_approximate(s[3] - odd)));
        }
    }
    return is_high;
}

// The group's part of the output, and the sum of a head's probabilities over half the positions:
// thread i of the group has head i / 2.
struct Running {
    float out[kLatentBoxes][kGroupHeads / 2] = {};
    float sum = 0;

    // Every head by its factor.
    __device__ void scale(const float* factors) {
        const int t = thread_now() % 4;
#pragma unroll
        for (int j = 0; j < kGroupHeads / 8; ++j) {
            const float even = factors[8 * j + 2 * t], odd = factors[8 * j + 2 * t + 1];
#pragma unroll
            for (auto& box : out) {
                box[4 * j] *= even;
                box[4 * j + 1] *= odd;
                box[4 * j + 2] *= even;
                box[4 * j + 3] *= odd;
            }
        }
    }
};

__device__ inline int head_of_sum() {
    return min(thread_now() % kGroupThreads / 2, kGroupHeads - 1);
}

// Raises the reference of every head to its largest score so far, this tile included.
__device__ inline void raise_reference(Shared& shared, int first_box, int left, Running& running) {
    sync_group();  // all have read the reference
#pragma unroll 1
    for (int part = 0; part < kScoreParts; ++part) {
        float scores[kScoreFloats];
        score_tile(shared, first_box, part, left, scores);
        const Lane lane;
#pragma unroll
        for (int i = 0; i < kScoreFloats / 2; ++i) {
            float best = fmaxf(scores[i / 2 * 4 + i % 2], scores[i / 2 * 4 + i % 2 + 2]);
            for (int offset = 4; offset < kWarpSize; offset *= 2) {
                best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, offset));
            }
            const int head = part * kScoreHeads + i / 2 * 8 + 2 * lane.t + i % 2;
            if (lane.g == 0) shared.of_warps[lane.group][lane.warp][head] = best;
        }
    }
    sync_group();
    const Lane lane;
    float(*of_warps)[kGroupHeads] = shared.of_warps[lane.group];
    const int head = thread_now() % kGroupThreads;
    if (head < kGroupHeads) {
        float& reference = shared.reference[lane.group][head];
        const float before = reference;
        float largest = before;
        for (int w = 0; w < kGroupWarps; ++w) largest = fmaxf(largest, of_warps[w][head]);
        reference = largest;
        of_warps[0][head] = exp2f(before - largest);  // the factor
    }
    sync_group();
    running.scale(of_warps[0]);
    running.sum *= of_warps[0][head_of_sum()];
}

template <int kBox>
__device__ inline void release_boxes(Shared& shared, int first) {
    if constexpr (kBox < kLatentBoxes) {
        wait_for_products<kLatentBoxes - 1 - kBox>();
        release_box(shared, first + kBox);
        release_boxes<kBox + 1>(shared, first);
    }
}

// What the products take, so that the sums are those of what is multiplied.
__device__ inline float sum_probabilities(const Shared& shared) {
    const Lane lane;
    const int head = head_of_sum();
    const Bf16* row = shared.p[lane.group][head];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kTokens / 16; ++i) {
        const int eighth = lane.lane % 2 * (kTokens / 16) + i;
        const uint4 pairs = *reinterpret_cast<const uint4*>(row + (eighth ^ head % 8) * 8);
        for (const uint32_t pair : {pairs.x, pairs.y, pairs.z, pairs.w}) {
            sum += __uint_as_float(pair << 16) + __uint_as_float(pair & 0xffff0000u);
        }
    }
    return sum;
}

// O^T += V^T P^T, and the boxes back to the copier.
__device__ inline void add_values(Shared& shared, int first_box, Running& running) {
    const uint32_t p = operand_at(shared.p[thread_now() / kGroupThreads]);
    begin_products();
#pragma unroll
    for (int i = 0; i < kLatentBoxes; ++i) {
        const uint32_t values = operand_at(shared.ring[slot_of(first_box + 1 + i)]);
#pragma unroll
        for (int k = 0; k < kTokenSteps; ++k) {
            multiply_async<true>(running.out[i], values + k * (2 * kAtomBytes / 16), p + k * 2,
                                 true);
        }
        commit_products();
    }
    running.sum += sum_probabilities(shared);
    release_boxes<0>(shared, first_box + 1);
}

// of_warps[1] becomes the sums of the heads.
__device__ inline void publish_sums(Shared& shared, float sum) {
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    const Lane lane;
    const int thread = thread_now() % kGroupThreads;
    if (thread % 2 == 0 && thread / 2 < kGroupHeads)
        shared.of_warps[lane.group][1][thread / 2] = sum;
    sync_group();
}

__device__ inline void write_partial(const Shared& shared, const Running& running,
                                     const Partials& partials) {
    const Lane lane;
    const Work& work = shared.work;
    const int split = static_cast<int>(blockIdx.y);
    const int thread = thread_now() % kGroupThreads;
    if (thread < kGroupHeads) {
        const int64_t query = work.first_query + lane.group * kGroupHeads + thread;
        partials.stats[split * partials.queries + query] = {shared.reference[lane.group][thread],
                                                            shared.of_warps[lane.group][1][thread]};
    }
    if (work.begin_tile == work.end_tile) return;
    float* to = partial_of(partials, split, work.first_query, lane.group) + thread * 4;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
        const float* v = running.out[i / kQuadsPerBox] + i % kQuadsPerBox * 4;
        store<4>(to + i * kGroupThreads * 4, {v[0], v[1], v[2], v[3]});
    }
}

__device__ inline void write_output(const Shared& shared, const Running& running,
                                    float* latent_out) {
    const Lane lane;
    float* to = latent_out +
                (shared.work.first_query + lane.group * kGroupHeads + lane.t * 2) * kRank +
                lane.warp * 16 + lane.g;
#pragma unroll
    for (int box = 0; box < kLatentBoxes; ++box) {
#pragma unroll
        for (int i = 0; i < kGroupHeads / 2; ++i) {
            to[(i / 4 * 8 + i % 2) * kRank + box * kOperandCols + i / 2 % 2 * 8] =
                running.out[box][i];
        }
    }
}

__device__ inline void attend(const MlaAttendArgs& args, const Partials& partials, Shared& shared) {
    const int head = thread_now() % kGroupThreads;
    if (head < kGroupHeads) shared.reference[thread_now() / kGroupThreads][head] = -INFINITY;
    load_queries(args, shared);
    Running running;
    int first_box = 0;
    for (int tile = shared.work.begin_tile; tile < shared.work.end_tile; ++tile) {
        const int left = shared.work.visible - tile * kTokens;
        bool is_high = tile == shared.work.begin_tile;
        for (;;) {
            if (is_high) raise_reference(shared, first_box, left, running);
            is_high = weigh_tile(shared, first_box, left);
            publish_to_products();
            is_high = sync_group_or(is_high);
            if (!is_high) break;
        }
        if (left < kTokens) {
            clear_rows(shared, first_box, left);
            publish_to_products();
            sync_group();
        }
        release_box(shared, first_box);  // the rope part
        add_values(shared, first_box, running);
        first_box += kBoxes;
    }
    publish_sums(shared, running.sum);
    if (args.num_splits > 1) return write_partial(shared, running, partials);
    const Lane lane;
    float* sums = shared.of_warps[lane.group][1];
    if (head < kGroupHeads) sums[head] = 1.0f / sums[head];
    sync_group();
    running.scale(sums);
    write_output(shared, running, args.latent_out);
}

}  // namespace k3pod::kernels

#pragma once
// The thread that brings the cached positions of a block.

#include <cuda.h>

#include "common/bulk_copy.cuh"
#include "sm90/mla_wide_tile.cuh"

namespace k3pod::kernels {

__device__ inline int first_channel(int box) {
    return box == 0 ? kRank : (box - 1) * kOperandCols;
}

__device__ inline void copy_box(Bf16* to, const CUtensorMap* pages, int channel, int row, int page,
                                uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
        "l"(pages), "r"(channel), "r"(row), "r"(page), "r"(shared_address(barrier))
        : "memory");
}

// Has a tile's bytes, which lie together, on their way into the L2.
__device__ inline void prefetch_tile(const MlaAttendArgs& args, int tile_in_page, int page) {
    const Bf16* tile =
        args.cache.pages + page * args.cache.page_stride + int64_t{tile_in_page} * kTokens * kWidth;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(tile),
                 "r"(static_cast<int>(kTokens * kWidth * sizeof(Bf16)))
                 : "memory");
}

// One thread. The ring holds hardly more than a tile, too little for the latency of the memory, so
// the L2 has the next ones before there is room for them. The pages on the way are looked up once.
__device__ inline void copy_tiles(const MlaAttendArgs& args, const CUtensorMap* pages,
                                  const Work& work, Shared& shared) {
    const int tiles_per_page = args.cache.page_tokens / kTokens;
    const int32_t* table = args.chunks.page_table + int64_t{work.chunk} * args.chunks.page_stride;
    int pages_ahead[kTilesAhead + 1];
#pragma unroll
    for (int i = 0; i <= kTilesAhead; ++i) {
        const int tile = min(work.begin_tile + i, work.end_tile - 1);
        pages_ahead[i] = table[tile / tiles_per_page];
    }
#pragma unroll
    for (int i = 1; i < kTilesAhead; ++i) {
        const int tile = work.begin_tile + i;
        if (tile < work.end_tile) {
            prefetch_tile(args, tile % tiles_per_page, pages_ahead[i]);
        }
    }
    int slot = 0;
    uint32_t round = 0;
    for (int tile = work.begin_tile; tile < work.end_tile; ++tile) {
        const int page = pages_ahead[0];
        const int ahead = tile + kTilesAhead;
        if (ahead < work.end_tile) {
            prefetch_tile(args, ahead % tiles_per_page, pages_ahead[kTilesAhead]);
        }
#pragma unroll
        for (int i = 0; i < kTilesAhead; ++i) pages_ahead[i] = pages_ahead[i + 1];
        if (ahead + 1 < work.end_tile)
            pages_ahead[kTilesAhead] = table[(ahead + 1) / tiles_per_page];
        for (int box = 0; box < kBoxes; ++box) {
            barrier_wait(&shared.empty[slot], round ^ 1);
            barrier_expect(&shared.full[slot], sizeof(shared.ring[0]));
            copy_box(&shared.ring[slot][0][0], pages, first_channel(box),
                     tile % tiles_per_page * kTokens, page, &shared.full[slot]);
            if (++slot < kSlots) continue;
            slot = 0;
            round ^= 1;
        }
    }
}

}  // namespace k3pod::kernels

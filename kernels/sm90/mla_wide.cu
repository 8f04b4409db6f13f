// Attention over the paged latent cache with the tensor cores of sm_90, for K3's widths. A block
// looks at the 96 heads of one token, 64 cached positions at a time, everything transposed so that
// the heads are the column side, of which 96 waste nothing:
//
//   scores^T[64, 96] = K Q^T      two groups of four warps, each with 48 of the heads
//   softmax, online               a group by itself: while one works on it, the other multiplies
//   O^T[512, 96] += V^T P^T
//
// Probabilities are relative to a reference that was the largest score when it was set and is only
// raised when a score exceeds it by 2^60: what lies between costs neither an overflow nor
// precision, and no tile waits for the maximum of all warps.
//
// K and V are the same bytes. A third group brings them in boxes of 64 positions and 64 channels
// through a ring: a box is free as soon as its last product is done, so copies never stop. Long
// sequences are cut into splits whose results a second kernel merges in order.

#include "sm90/mla_wide.h"

#include <cuda.h>

#include "common/launch.cuh"
#include "sm90/mla_wide_copier.cuh"
#include "sm90/mla_wide_group.cuh"

namespace k3pod::kernels {
namespace {

// False: nothing to do for this block.
__device__ inline bool find_work(const MlaAttendArgs& args, Work& work) {
    const int heads = args.dims.heads;
    work.chunk = static_cast<int>(blockIdx.z);
    const int query = static_cast<int>(blockIdx.x) * kHeads;
    if (query >= args.chunks.num_rows[work.chunk] * heads) return false;
    work.first_query = int64_t{args.chunks.first_row[work.chunk]} * heads + query;
    work.visible = args.chunks.positions[work.chunk] + 1 + query / heads;
    const int tiles = (work.visible + kTokens - 1) / kTokens;
    const int per_split = (tiles + args.num_splits - 1) / args.num_splits;
    work.begin_tile = min(static_cast<int>(blockIdx.y) * per_split, tiles);
    work.end_tile = min(work.begin_tile + per_split, tiles);
    return true;
}

__global__ void __launch_bounds__(kThreads, 1)
    wide_attend_kernel(MlaAttendArgs args, Partials partials,
                       const __grid_constant__ CUtensorMap pages) {
    extern __shared__ __align__(kAtomBytes) std::byte memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kSlots; ++i) {
            barrier_init(&shared.full[i], 1);
            barrier_init(&shared.empty[i], kGroups * kGroupWarps);
        }
        barrier_init_fence();
    }
    wait_for_previous();
    Work work;
    if (!find_work(args, work)) return;
    if (threadIdx.x == 0) shared.work = work;
    __syncthreads();
    if (threadIdx.x >= kGroups * kGroupThreads) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopierRegisters));
        if (threadIdx.x == kGroups * kGroupThreads && work.begin_tile < work.end_tile) {
            copy_tiles(args, &pages, work, shared);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kGroupRegisters));
        attend(args, partials, shared);
    }
}

// How the copy engine sees the pages: [page, token, channel] in boxes of 64 tokens, 64 channels.
Result<CUtensorMap> map_pages(const MlaCache& cache) {
    static const auto encode = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult found = {};
        const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                            12000, cudaEnableDefault, &found);
        const bool is_there = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(is_there ? function : nullptr);
    }();
    constexpr cuuint64_t kManyPages = uint64_t{1} << 30;
    const cuuint64_t sizes[] = {kWidth, static_cast<cuuint64_t>(cache.page_tokens), kManyPages};
    const cuuint64_t strides[] = {kWidth * sizeof(Bf16),
                                  static_cast<cuuint64_t>(cache.page_stride) * sizeof(Bf16)};
    const cuuint32_t box[] = {kOperandCols, kTokens, 1};
    const cuuint32_t steps[] = {1, 1, 1};
    CUtensorMap map = {};
    const CUresult result =
        encode == nullptr
            ? CUDA_ERROR_NOT_FOUND
            : encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, cache.pages, sizes, strides, box,
                     steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    K3POD_TRY(require(result == CUDA_SUCCESS, "mla_attend", "cuTensorMapEncodeTiled's result",
                      static_cast<int64_t>(result), "0: a driver for CUDA 12 or newer"));
    return map;
}

}  // namespace

bool is_wide_mla(const MlaDims& dims) {
    return dims.heads % kHeads == 0 && dims.rank == kRank && dims.cache_width() == kWidth;
}

Status wide_mla_attend(const MlaAttendArgs& args, CudaStream stream) {
    Partials partials = {};
    partials.queries = int64_t{args.rows} * args.dims.heads;
    if (args.num_splits > 1) {
        partials.stats = reinterpret_cast<SplitStats*>(args.workspace);
        partials.out = reinterpret_cast<float*>(
            args.workspace + mla_stats_bytes(args.dims, args.rows, args.num_splits));
    }
    K3POD_ASSIGN(const CUtensorMap pages, map_pages(args.cache));
    const auto tokens = static_cast<unsigned>(args.chunks.max_rows * (args.dims.heads / kHeads));
    const auto chunks = static_cast<unsigned>(args.chunks.num_chunks);
    K3POD_TRY(allow_shared("mla_attend", wide_attend_kernel, sizeof(Shared)));
    K3POD_TRY(launch("mla_attend", wide_attend_kernel,
                     {.grid = dim3(tokens, static_cast<unsigned>(args.num_splits), chunks),
                      .block = kThreads,
                      .shared_bytes = sizeof(Shared),
                      .overlaps_previous = true},
                     stream, args, partials, pages));
    if (args.num_splits == 1) return Status::ok();
    return wide_mla_merge(args, partials, stream);
}

}  // namespace k3pod::kernels

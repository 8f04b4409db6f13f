#pragma once
// What the kernels of MLA share: where a cache row lies, and what every launcher checks.

#include "common/require.h"
#include "k3pod/kernels/mla.h"

namespace k3pod::kernels {

inline constexpr int kMaxMlaRank = 512;
inline constexpr int kMaxMlaRope = 64;
inline constexpr int kMaxMlaWidth = kMaxMlaRank + kMaxMlaRope;
inline constexpr int kMaxMlaSplits = 256;

// Result of one split for one query row: the largest score times log2(e), and the sum of the
// probabilities relative to it.
struct SplitStats {
    float largest;
    float sum;
};

// [splits, R * heads] of them, the first part of the workspace.
inline int64_t mla_stats_bytes(const MlaDims& dims, int32_t rows, int32_t num_splits) {
    const int64_t bytes =
        int64_t{num_splits} * rows * dims.heads * static_cast<int64_t>(sizeof(SplitStats));
    return (bytes + 255) / 256 * 256;
}

// In elements from the base of the pages.
__device__ inline int64_t cache_row_offset(const MlaDims& dims, const MlaCache& cache,
                                           const StepChunks& chunks, int chunk, int position) {
    const int page =
        chunks.page_table[int64_t{chunk} * chunks.page_stride + position / cache.page_tokens];
    return page * cache.page_stride + position % cache.page_tokens * int64_t{dims.cache_width()};
}

inline Status check_mla_dims(const char* kernel, const MlaDims& dims) {
    K3POD_TRY(require(dims.heads > 0, kernel, "heads", dims.heads, "at least 1"));
    K3POD_TRY(require(dims.nope > 0 && dims.nope <= 512, kernel, "nope", dims.nope, "in [1, 512]"));
    K3POD_TRY(require(dims.value > 0, kernel, "value", dims.value, "at least 1"));
    K3POD_TRY(require(dims.rank > 0 && dims.rank % 16 == 0 && dims.rank <= kMaxMlaRank, kernel,
                      "rank", dims.rank, "a multiple of 16, at most 512"));
    return require(dims.rope >= 0 && dims.rope % 16 == 0 && dims.rope <= kMaxMlaRope, kernel,
                   "rope", dims.rope, "a multiple of 16, at most 64");
}

inline Status check_mla(const char* kernel, const MlaDims& dims, const StepChunks& chunks) {
    K3POD_TRY(check_mla_dims(kernel, dims));
    K3POD_TRY(require(chunks.num_chunks >= 0 && chunks.num_chunks <= 65535, kernel, "num_chunks",
                      chunks.num_chunks, "in [0, 65535]"));
    return require(chunks.max_rows >= 1, kernel, "max_rows", chunks.max_rows, "at least 1");
}

inline Status check_mla_cache(const char* kernel, const MlaDims& dims, const MlaCache& cache) {
    K3POD_TRY(require(cache.page_tokens > 0 && cache.page_tokens % 16 == 0, kernel, "page_tokens",
                      cache.page_tokens, "a multiple of 16"));
    const bool aligned =
        reinterpret_cast<uintptr_t>(cache.pages) % 16 == 0 && cache.page_stride % 8 == 0;
    K3POD_TRY(require(aligned, kernel, "page_stride", cache.page_stride,
                      "a multiple of 8, with pages aligned to 16 bytes"));
    return require(cache.page_stride >= int64_t{cache.page_tokens} * dims.cache_width(), kernel,
                   "page_stride", cache.page_stride, "at least page_tokens * (rank + rope)");
}

inline Status check_kv_b(const char* kernel, const MlaDims& dims, const MatrixView& kv_b) {
    K3POD_TRY(require(kv_b.rows == dims.heads * (dims.nope + dims.value), kernel, "kv_b's rows",
                      kv_b.rows, "heads * (nope + value)"));
    return require(kv_b.cols == dims.rank, kernel, "kv_b's columns", kv_b.cols, "rank");
}

}  // namespace k3pod::kernels

#include <array>
#include <limits>
#include <type_traits>

#include "k3pod/ops/linear.h"
#include "k3pod/ops/mla.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mla_attend.cc"
#include "hwy/foreach_target.h"
//
#include "ops/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

inline constexpr int64_t kBlock = kMlaBlockTokens;
inline constexpr int64_t kMaxCacheWidth = kMlaMaxRank + kMlaMaxRope;
// Query rows (a head of a token) that share one widening of a block. A few, as in decoding, read
// the cache as it is: widening pays when it is read back more often.
inline constexpr int64_t kTileQueries = 32;
inline constexpr int64_t kFewQueries = 4;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

static_assert(kBlock % kLanes == 0);

// Query rows [first, first + count) of [T * heads] and their running softmax.
struct QueryTile {
    int64_t first = 0;
    int64_t count = 0;
    std::array<float, kTileQueries> largest;
    std::array<float, kTileQueries> sum;
    HWY_ALIGN float p[kTileQueries][kBlock];  // scores, then probabilities of the current block
    HWY_ALIGN float block[kBlock][kMaxCacheWidth];
};

HWY_INLINE RowsOf<Bf16> cached_rows(const MlaAttendArgs& args, int64_t begin) {
    const int64_t width = args.shape.cache_width();
    const int64_t page = begin / args.cache.page_tokens;
    return {args.cache.pages[page].data() + begin % args.cache.page_tokens * width, width};
}

HWY_INLINE Rows widen_block(RowsOf<Bf16> rows, int64_t count, QueryTile& tile) {
    for (int64_t j = 0; j < count; ++j) {
        map(rows.row(j), tile.block[j], rows.stride, [](V v) HWY_ATTR { return v; });
    }
    return {tile.block[0], kMaxCacheWidth};
}

// Turns the scores of one query row into probabilities relative to the new maximum. Gives the
// factor that brings earlier sums to it.
HWY_INLINE float softmax_block(float scale, int64_t visible, float* p, float& largest, float& sum) {
    for (int64_t j = visible; j < kBlock; ++j) p[j] = kMinusInfinity;
    V best = broadcast(kMinusInfinity);
    for (int64_t j = 0; j < kBlock; j += kLanes) {
        store(hn::Mul(load(p + j), broadcast(scale)), p + j);
        best = hn::Max(best, load(p + j));
    }
    const float before = largest;
    largest = HWY_MAX(before, hn::GetLane(hn::MaxOfLanes(D(), best)));
    V total = hn::Zero(D());
    for (int64_t j = 0; j < kBlock; j += kLanes) {
        const V e = exp(hn::Sub(load(p + j), broadcast(largest)));
        store(e, p + j);
        total = hn::Add(total, e);
    }
    const float factor = hn::GetLane(exp(broadcast(before - largest)));
    sum = sum * factor + sum_lanes(total);
    return factor;
}

// A block of positions, widened or as it is cached.
template <class T>
struct Block {
    int64_t begin;  // first position
    int64_t count;  // at most kBlock
    RowsOf<T> rows;
};

// out = out * factor + p block, for kR query rows and kVectors vectors of columns at once: the sums
// are as many chains of dependent additions.
template <int64_t kR, int64_t kVectors, class T>
HWY_INLINE void add_columns(const QueryTile& tile, int64_t first, const float* factors,
                            const Block<T>& block, int64_t col, RowsOut out) {
    V sum[kR][kVectors];
    for (int64_t r = 0; r < kR; ++r) {
        for (int64_t i = 0; i < kVectors; ++i) {
            const V before = load(out.data + r * out.stride + col + i * kLanes);
            sum[r][i] = hn::Mul(before, broadcast(factors[r]));
        }
    }
    for (int64_t j = 0; j < block.count; ++j) {
        for (int64_t i = 0; i < kVectors; ++i) {
            const V value = load(block.rows.row(j) + col + i * kLanes);
            for (int64_t r = 0; r < kR; ++r) {
                sum[r][i] = hn::MulAdd(broadcast(tile.p[first + r][j]), value, sum[r][i]);
            }
        }
    }
    for (int64_t r = 0; r < kR; ++r) {
        for (int64_t i = 0; i < kVectors; ++i) {
            store(sum[r][i], out.data + r * out.stride + col + i * kLanes);
        }
    }
}

template <int64_t kR, class T>
HWY_INLINE void add_values(const QueryTile& tile, int64_t first, const float* factors,
                           const Block<T>& block, RowsOut out) {
    int64_t col = 0;
    for (; col + 2 * kLanes <= out.stride; col += 2 * kLanes) {
        add_columns<kR, 2>(tile, first, factors, block, col, out);
    }
    for (; col < out.stride; col += kLanes) {
        add_columns<kR, 1>(tile, first, factors, block, col, out);
    }
}

// One block for the query rows [skip, count) of the tile; earlier rows do not see it.
template <class T>
HWY_INLINE void attend_block(const MlaAttendArgs& args, const Block<T>& block, int64_t skip,
                             QueryTile& tile) {
    const MlaShape& shape = args.shape;
    const int64_t width = shape.cache_width();
    const int64_t rank = shape.rank;
    const float* q = args.latent_q.data() + (tile.first + skip) * width;
    dot_rows(tile.count - skip, {q, width}, block.count, block.rows, width,
             {tile.p[skip], kBlock, false});
    std::array<float, kTileQueries> factors;
    for (int64_t r = skip; r < tile.count; ++r) {
        const int64_t token = (tile.first + r) / shape.heads;
        const int64_t visible = HWY_MIN(block.count, args.position + token + 1 - block.begin);
        factors[r] = softmax_block(args.scale, visible, tile.p[r], tile.largest[r], tile.sum[r]);
    }
    int64_t r = skip;
    const auto add_rows = [&]<int64_t kR>(std::integral_constant<int64_t, kR>) HWY_ATTR {
        for (; r + kR <= tile.count; r += kR) {
            float* out = args.latent_out.data() + (tile.first + r) * rank;
            add_values<kR>(tile, r, factors.data() + r, block, {out, rank});
        }
    };
    add_rows(std::integral_constant<int64_t, 4>());
    add_rows(std::integral_constant<int64_t, 3>());
    add_rows(std::integral_constant<int64_t, 1>());
}

// Query rows of the tile that belong to tokens before position `begin`.
HWY_INLINE int64_t rows_before(const MlaAttendArgs& args, const QueryTile& tile, int64_t begin) {
    const int64_t first_token = HWY_MAX(int64_t{0}, begin - args.position);
    return HWY_MIN(tile.count, HWY_MAX(int64_t{0}, first_token * args.shape.heads - tile.first));
}

HWY_INLINE void attend_tile(const MlaAttendArgs& args, QueryTile& tile) {
    const int64_t rank = args.shape.rank;
    float* out = args.latent_out.data() + tile.first * rank;
    std::memset(out, 0, static_cast<size_t>(tile.count * rank) * sizeof(float));
    tile.largest.fill(kMinusInfinity);
    tile.sum.fill(0.0f);
    const int64_t last_token = (tile.first + tile.count - 1) / args.shape.heads;
    const int64_t end = args.position + last_token + 1;
    for (int64_t begin = 0; begin < end; begin += kBlock) {
        const int64_t count = HWY_MIN(kBlock, end - begin);
        const int64_t skip = rows_before(args, tile, begin);
        const RowsOf<Bf16> cached = cached_rows(args, begin);
        if (tile.count <= kFewQueries) {
            attend_block(args, Block<Bf16>{begin, count, cached}, skip, tile);
        } else {
            const Rows widened = widen_block(cached, count, tile);
            attend_block(args, Block<float>{begin, count, widened}, skip, tile);
        }
    }
    for (int64_t r = 0; r < tile.count; ++r, out += rank) {
        const V inverse = broadcast(1.0f / tile.sum[r]);
        map(out, out, rank, [inverse](V v) HWY_ATTR { return hn::Mul(v, inverse); });
    }
}

void attend(const MlaAttendArgs& args) {
    QueryTile tile;
    const int64_t queries = int64_t{args.tokens} * args.shape.heads;
    for (int64_t first = 0; first < queries; first += kTileQueries) {
        tile.first = first;
        tile.count = HWY_MIN(kTileQueries, queries - first);
        attend_tile(args, tile);
    }
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "k3pod/base/check.h"

namespace k3pod::ops {

HWY_EXPORT(attend);

void mla_attend(const MlaAttendArgs& args) {
    const MlaShape& s = args.shape;
    const int64_t queries = int64_t{args.tokens} * s.heads;
    const int64_t end = int64_t{args.position} + args.tokens;
    K3POD_CHECK(s.rank % 16 == 0 && s.rank <= kMlaMaxRank,
                "rank must be a multiple of 16, at most 512");
    K3POD_CHECK(s.rope >= 0 && s.rope <= kMlaMaxRope, "rope must be at most 64");
    K3POD_CHECK(std::ssize(args.latent_q) == queries * s.cache_width(),
                "latent_q must be [T, heads, rank + rope]");
    K3POD_CHECK(std::ssize(args.latent_out) == queries * s.rank,
                "latent_out must be [T, heads, rank]");
    K3POD_CHECK(args.cache.page_tokens > 0 && args.cache.page_tokens % kMlaBlockTokens == 0,
                "page_tokens must be a multiple of kMlaBlockTokens");
    K3POD_CHECK(args.position >= 0 && end <= std::ssize(args.cache.pages) * args.cache.page_tokens,
                "the pages must cover every position attended to");
    for (const auto& page : args.cache.pages) {
        K3POD_CHECK(std::ssize(page) == int64_t{args.cache.page_tokens} * s.cache_width(),
                    "a page must be [page_tokens, rank + rope]");
    }
    HWY_DYNAMIC_DISPATCH(attend)(args);
}

}  // namespace k3pod::ops
#endif

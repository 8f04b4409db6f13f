#include <array>
#include <limits>

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
// Query rows (a head of a token) that share one widening of a block.
inline constexpr int64_t kTileQueries = 32;
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

// Positions past `valid` may hold anything, NaN too; they become zeros.
HWY_INLINE void widen_block(const MlaAttendArgs& args, int64_t begin, int64_t valid,
                            QueryTile& tile) {
    const int64_t width = args.shape.cache_width();
    const int64_t page = begin / args.cache.page_tokens;
    const Bf16* rows = args.cache.pages[page].data() + begin % args.cache.page_tokens * width;
    for (int64_t j = 0; j < kBlock; ++j) {
        if (j >= valid) {
            std::memset(tile.block[j], 0, static_cast<size_t>(width) * sizeof(float));
            continue;
        }
        for (int64_t i = 0; i < width; ++i) tile.block[j][i] = to_f32(rows[j * width + i]);
    }
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

// out = out * factor + p block, for kR query rows at once.
template <int64_t kR>
HWY_INLINE void add_values(const QueryTile& tile, int64_t first, const float* factors, int64_t rank,
                           float* out) {
    for (int64_t i = 0; i < rank; i += kLanes) {
        V sum[kR];
        for (int64_t r = 0; r < kR; ++r) {
            sum[r] = hn::Mul(load(out + r * rank + i), broadcast(factors[r]));
        }
        for (int64_t j = 0; j < kBlock; ++j) {
            const V value = load(tile.block[j] + i);
            for (int64_t r = 0; r < kR; ++r) {
                sum[r] = hn::MulAdd(broadcast(tile.p[first + r][j]), value, sum[r]);
            }
        }
        for (int64_t r = 0; r < kR; ++r) store(sum[r], out + r * rank + i);
    }
}

// One block of positions for the query rows [skip, count) of the tile; earlier rows do not see it.
HWY_INLINE void attend_block(const MlaAttendArgs& args, int64_t begin, int64_t skip,
                             QueryTile& tile) {
    constexpr int64_t kRows = 4;
    const MlaShape& shape = args.shape;
    const int64_t width = shape.cache_width();
    const int64_t rank = shape.rank;
    const float* q = args.latent_q.data() + (tile.first + skip) * width;
    dot_rows(tile.count - skip, {q, width}, kBlock, {tile.block[0], kMaxCacheWidth}, width,
             {tile.p[skip], kBlock, false});
    std::array<float, kTileQueries> factors;
    for (int64_t r = skip; r < tile.count; ++r) {
        const int64_t token = (tile.first + r) / shape.heads;
        const int64_t visible = HWY_MIN(kBlock, args.position + token + 1 - begin);
        factors[r] = softmax_block(args.scale, visible, tile.p[r], tile.largest[r], tile.sum[r]);
    }
    const auto out = [&](int64_t r)
                         HWY_ATTR { return args.latent_out.data() + (tile.first + r) * rank; };
    int64_t r = skip;
    for (; r + kRows <= tile.count; r += kRows) {
        add_values<kRows>(tile, r, factors.data() + r, rank, out(r));
    }
    for (; r < tile.count; ++r) add_values<1>(tile, r, factors.data() + r, rank, out(r));
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
        widen_block(args, begin, HWY_MIN(kBlock, end - begin), tile);
        attend_block(args, begin, rows_before(args, tile, begin), tile);
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

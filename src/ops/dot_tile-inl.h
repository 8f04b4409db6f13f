// Products of fp32 rows with fp32 or bf16 rows, the inner loop of most ops. Included once per
// instruction set.

#if defined(K3POD_OPS_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3POD_OPS_DOT_TILE_INL_H_
#undef K3POD_OPS_DOT_TILE_INL_H_
#else
#define K3POD_OPS_DOT_TILE_INL_H_
#endif

#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

template <class T>
struct RowsOf {
    const T* data;
    int64_t stride;
    const T* row(int64_t i) const { return data + i * stride; }
};
using Rows = RowsOf<float>;

struct DotOutput {
    float* data;
    int64_t stride;
    bool accumulate;  // y += instead of y =
    void put(int64_t t, int64_t r, float sum) const {
        float& y = data[t * stride + r];
        y = accumulate ? y + sum : sum;
    }
};

// Sixteen vector registers fit 4 x 2 sums, thirty-two fit 4 x 4.
inline constexpr int kTileTokens = 4;
#if HWY_ARCH_ARM_A64 || HWY_TARGET == HWY_AVX3
inline constexpr int kTileRows = 4;
#else
inline constexpr int kTileRows = 2;
#endif

// y[t, r] = <x[t], w[r]> for a tile. Each sum has its own accumulator and walks the columns in
// order, so its bits do not depend on the size of the tile.
template <int kT, int kR, class W>
HWY_INLINE void dot_tile(Rows x, RowsOf<W> w, int64_t cols, DotOutput y) {
    constexpr int kSums = (kT * kR + 3) / 4 * 4;
    V sum[kSums];
    for (V& s : sum) s = hn::Zero(D());
    const auto step = [&](auto load_at) HWY_ATTR {
        V weights[kR];
        for (int r = 0; r < kR; ++r) weights[r] = load_at(w.row(r));
        for (int t = 0; t < kT; ++t) {
            const V input = load_at(x.row(t));
            for (int r = 0; r < kR; ++r) {
                sum[t * kR + r] = hn::MulAdd(weights[r], input, sum[t * kR + r]);
            }
        }
    };
    int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) {
        step([c](const auto* row) HWY_ATTR { return load(row + c); });
    }
    if (c < cols) {
        step([c, cols](const auto* row) HWY_ATTR { return load_partial(row + c, cols - c); });
    }
    float totals[kSums];
    for (int i = 0; i < kSums; i += 4) sum_lanes_of_four(sum + i, totals + i);
    for (int t = 0; t < kT; ++t) {
        for (int r = 0; r < kR; ++r) y.put(t, r, totals[t * kR + r]);
    }
}

template <int kT, class W>
HWY_INLINE void dot_tokens(Rows x, int64_t rows, RowsOf<W> w, int64_t cols, DotOutput y) {
    int64_t r = 0;
    const auto advance = [&](int64_t n) HWY_ATTR {
        r += n;
        w.data += n * w.stride;
        y.data += n;
    };
    while (r + kTileRows <= rows) {
        dot_tile<kT, kTileRows>(x, w, cols, y);
        advance(kTileRows);
    }
    while (r < rows) {
        dot_tile<kT, 1>(x, w, cols, y);
        advance(1);
    }
}

// y[T, rows] = x[T, cols] w[rows, cols]^T.
template <class W>
HWY_INLINE void dot_rows(int64_t tokens, Rows x, int64_t rows, RowsOf<W> w, int64_t cols,
                         DotOutput y) {
    int64_t t = 0;
    const auto advance = [&](int64_t n) HWY_ATTR {
        t += n;
        x.data += n * x.stride;
        y.data += n * y.stride;
    };
    while (t + kTileTokens <= tokens) {
        dot_tokens<kTileTokens>(x, rows, w, cols, y);
        advance(kTileTokens);
    }
    switch (tokens - t) {
        case 3:
            return dot_tokens<3>(x, rows, w, cols, y);
        case 2:
            return dot_tokens<2>(x, rows, w, cols, y);
        case 1:
            return dot_tokens<1>(x, rows, w, cols, y);
    }
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#include "k3pod/ops/linear.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear.cc"
#include "hwy/foreach_target.h"
//
#include "ops/dot_tile-inl.h"
#include "ops/weight_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

// Columns summed before a sum is folded into y. Part of the order of summation: both products use
// it.
inline constexpr int64_t kColBlock = 1024;
inline constexpr int64_t kGemvRows = 4;
// A panel of widened weights and four rows of activations stay in a 48 KiB first-level cache. The
// odd stride keeps its rows from falling into the same cache sets.
inline constexpr int64_t kPanelRows = 8;
inline constexpr int64_t kPanelStride = kColBlock + 16;

// One token: weights go from memory through registers into the sums.
template <class Row, size_t kR>
HWY_INLINE void gemv_tile(const MatrixView& w, int64_t row, const float* x, float* y) {
    const auto rows = rows_from<Row, kR>(w, row);
    for (int64_t begin = 0; begin < w.cols; begin += kColBlock) {
        const int64_t end = HWY_MIN(begin + kColBlock, int64_t{w.cols});
        V sum[kGemvRows];
        for (V& s : sum) s = hn::Zero(D());
        const auto use = [&](int64_t col, int64_t n, const V(&weights)[kR]) HWY_ATTR {
            const V input = n == kLanes ? load(x + col) : load_partial(x + col, n);
            for (size_t r = 0; r < kR; ++r) sum[r] = hn::MulAdd(weights[r], input, sum[r]);
        };
        for_each_vector(rows, begin, end, use);
        float of_block[kGemvRows];
        sum_lanes_of_four(sum, of_block);
        for (size_t r = 0; r < kR; ++r) y[r] = begin == 0 ? of_block[r] : y[r] + of_block[r];
    }
}

template <class Row>
HWY_INLINE void gemv(const MatrixBand& band, const float* x, float* y) {
    int64_t row = band.begin;
    for (; row + kGemvRows <= band.end; row += kGemvRows, y += kGemvRows) {
        gemv_tile<Row, kGemvRows>(band.weight, row, x, y);
    }
    for (; row < band.end; ++row, ++y) gemv_tile<Row, 1>(band.weight, row, x, y);
}

// Many tokens: a few weight rows are widened once and meet every token from the cache.
template <class Row>
HWY_INLINE void gemm(const MatrixBand& band, int64_t tokens, RowsIn x, RowsOut y) {
    HWY_ALIGN float panel[kPanelRows * kPanelStride];
    const int64_t cols = band.weight.cols;
    for (int64_t begin = 0; begin < cols; begin += kColBlock) {
        const int64_t width = HWY_MIN(kColBlock, cols - begin);
        for (int64_t first = band.begin; first < band.end; first += kPanelRows) {
            const int64_t rows = HWY_MIN(kPanelRows, band.end - first);
            widen_block<Row>(band.weight, {first, rows, begin, width}, panel, kPanelStride);
            dot_rows(tokens, {x.data + begin, x.stride}, rows, Rows{panel, kPanelStride}, width,
                     {y.data + (first - band.begin), y.stride, begin > 0});
        }
    }
}

void band_product(const MatrixBand& band, int32_t tokens, RowsIn x, RowsOut y) {
    with_row_type(band.weight.format, [&]<class Row>() HWY_ATTR {
        if (tokens == 1) {
            gemv<Row>(band, x.data, y.data);
        } else {
            gemm<Row>(band, tokens, x, y);
        }
    });
}

inline constexpr int64_t kStripVectors = 8;
inline constexpr int64_t kStripCols = kStripVectors * kLanes;
inline constexpr int64_t kStripRows = 128;

// y[c] += sum_r x[r] * strip[r, c], the rows in order, for one strip of columns.
HWY_INLINE void add_strip(const float* x, int64_t rows, const float* strip, float* y) {
    V sum[kStripVectors];
    for (int64_t i = 0; i < kStripVectors; ++i) sum[i] = load(y + i * kLanes);
    for (int64_t r = 0; r < rows; ++r, strip += kStripCols) {
        const V input = broadcast(x[r]);
        for (int64_t i = 0; i < kStripVectors; ++i) {
            sum[i] = hn::MulAdd(input, load(strip + i * kLanes), sum[i]);
        }
    }
    for (int64_t i = 0; i < kStripVectors; ++i) store(sum[i], y + i * kLanes);
}

template <class Row>
HWY_INLINE void transposed(const MatrixBand& band, int64_t tokens, RowsIn x, RowsOut y) {
    HWY_ALIGN float strip[kStripRows * kStripCols] = {};
    HWY_ALIGN float sums[kStripCols];
    const int64_t cols = band.weight.cols;
    for (int64_t col = 0; col < cols; col += kStripCols) {
        const int64_t width = HWY_MIN(kStripCols, cols - col);
        const size_t width_bytes = static_cast<size_t>(width) * sizeof(float);
        for (int64_t first = 0; first < band.rows(); first += kStripRows) {
            const int64_t rows = HWY_MIN(kStripRows, band.rows() - first);
            widen_block<Row>(band.weight, {band.begin + first, rows, col, width}, strip,
                             kStripCols);
            for (int64_t t = 0; t < tokens; ++t) {
                float* out = y.data + t * y.stride + col;
                std::memset(sums, 0, sizeof(sums));
                if (first > 0) std::memcpy(sums, out, width_bytes);
                add_strip(x.data + t * x.stride + first, rows, strip, sums);
                std::memcpy(out, sums, width_bytes);
            }
        }
    }
}

void band_transposed(const MatrixBand& band, int32_t tokens, RowsIn x, RowsOut y) {
    with_row_type(band.weight.format,
                  [&]<class Row>() HWY_ATTR { transposed<Row>(band, tokens, x, y); });
}

void widen_band(const MatrixBand& band, float* out) {
    const int64_t cols = band.weight.cols;
    with_row_type(band.weight.format, [&]<class Row>() HWY_ATTR {
        widen_block<Row>(band.weight, {band.begin, band.rows(), 0, cols}, out, cols);
    });
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "k3pod/base/check.h"

namespace k3pod::ops {

HWY_EXPORT(band_product);
HWY_EXPORT(band_transposed);
HWY_EXPORT(widen_band);

namespace {

void check_band(const MatrixBand& band) {
    K3POD_CHECK(band.weight.data != nullptr, "a product needs a loaded matrix");
    K3POD_CHECK(0 <= band.begin && band.begin <= band.end && band.end <= band.weight.rows,
                "a band must lie inside its matrix");
    const bool needs_scales = matrix_scale_bytes(band.weight.format, 1, band.weight.cols) > 0;
    K3POD_CHECK(!needs_scales || band.weight.scales != nullptr, "this weight format needs scales");
}

}  // namespace

void linear(const MatrixView& weight, int32_t tokens, std::span<const float> x,
            std::span<float> y) {
    K3POD_CHECK(std::ssize(x) == int64_t{tokens} * weight.cols, "x must be [T, cols]");
    K3POD_CHECK(std::ssize(y) == int64_t{tokens} * weight.rows, "y must be [T, rows]");
    linear_band({weight, 0, weight.rows}, tokens, {x.data(), weight.cols}, {y.data(), weight.rows});
}

void linear_band(const MatrixBand& band, int32_t tokens, RowsIn x, RowsOut y) {
    if (tokens == 0 || band.rows() == 0) return;
    check_band(band);
    K3POD_CHECK(x.stride >= band.weight.cols && y.stride >= band.rows(),
                "rows of x and y must not overlap");
    HWY_DYNAMIC_DISPATCH(band_product)(band, tokens, x, y);
}

void linear_band_transposed(const MatrixBand& band, int32_t tokens, RowsIn x, RowsOut y) {
    if (tokens == 0) return;
    check_band(band);
    K3POD_CHECK(band.rows() > 0, "a transposed product needs at least one row");
    K3POD_CHECK(x.stride >= band.rows() && y.stride >= band.weight.cols,
                "rows of x and y must not overlap");
    HWY_DYNAMIC_DISPATCH(band_transposed)(band, tokens, x, y);
}

void dequantize_rows(const MatrixView& weight, int32_t begin, int32_t end, std::span<float> out) {
    const MatrixBand band{weight, begin, end};
    check_band(band);
    K3POD_CHECK(std::ssize(out) == int64_t{band.rows()} * weight.cols, "out must be [rows, cols]");
    HWY_DYNAMIC_DISPATCH(widen_band)(band, out.data());
}

}  // namespace k3pod::ops
#endif

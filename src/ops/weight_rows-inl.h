// One row of a weight matrix in each format, read as fp32 vectors. Included once per instruction
// set.
//
// A format gives: kSpan, the columns that share a scale; kHasScale; scale(span); load(col), kLanes
// unscaled values from a column that is a multiple of kLanes; load_partial(col, n), the same for
// the last n < kLanes columns of a row, zeros behind.

#if defined(K3POD_OPS_WEIGHT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3POD_OPS_WEIGHT_ROWS_INL_H_
#undef K3POD_OPS_WEIGHT_ROWS_INL_H_
#else
#define K3POD_OPS_WEIGHT_ROWS_INL_H_
#endif

#include <array>
#include <bit>

#include "k3pod/device/matrix.h"
#include "ops/e4m3.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

template <class T>
HWY_INLINE const T* row_start(const MatrixView& w, int64_t row, int64_t elements_per_item = 1) {
    return reinterpret_cast<const T*>(w.data) + row * w.cols / elements_per_item;
}

struct F32Row {
    static constexpr int64_t kSpan = 128;
    static constexpr bool kHasScale = false;
    const float* data;

    F32Row(const MatrixView& w, int64_t row) : data(row_start<float>(w, row)) {}
    HWY_INLINE V scale(int64_t) const { return broadcast(1.0f); }
    HWY_INLINE const std::byte* at(int64_t col) const {
        return reinterpret_cast<const std::byte*>(data + col);
    }
    HWY_INLINE V load(int64_t col) const { return hn::LoadU(D(), data + col); }
    HWY_INLINE V load_partial(int64_t col, int64_t n) const {
        return HWY_NAMESPACE::load_partial(data + col, n);
    }
};

struct Bf16Row {
    static constexpr int64_t kSpan = 128;
    static constexpr bool kHasScale = false;
    const Bf16* data;

    Bf16Row(const MatrixView& w, int64_t row) : data(row_start<Bf16>(w, row)) {}
    HWY_INLINE V scale(int64_t) const { return broadcast(1.0f); }
    HWY_INLINE const std::byte* at(int64_t col) const {
        return reinterpret_cast<const std::byte*>(data + col);
    }
    HWY_INLINE V load(int64_t col) const { return HWY_NAMESPACE::load(data + col); }
    HWY_INLINE V load_partial(int64_t col, int64_t n) const {
        return HWY_NAMESPACE::load_partial(data + col, n);
    }
};

// E4M3 shifted into the fields of an fp16 is the value times 2^-8, subnormals included, and the
// fp16 conversion is one instruction without a slow case.
struct Fp8Row {
    static constexpr int64_t kSpan = kFp8TileSize;
    static constexpr bool kHasScale = true;
    const int8_t* data;
    const float* scales;

    Fp8Row(const MatrixView& w, int64_t row)
        : data(row_start<int8_t>(w, row)),
          scales(reinterpret_cast<const float*>(w.scales) +
                 row / kFp8TileSize * ((w.cols + kFp8TileSize - 1) / kFp8TileSize)) {}
    HWY_INLINE V scale(int64_t span) const { return broadcast(scales[span] * 256.0f); }
    HWY_INLINE const std::byte* at(int64_t col) const {
        return reinterpret_cast<const std::byte*>(data + col);
    }
    HWY_INLINE V load(int64_t col) const { return widen(data + col); }
    HWY_INLINE V load_partial(int64_t col, int64_t n) const {
        HWY_ALIGN int8_t lanes[kLanes] = {};
        std::memcpy(lanes, data + col, static_cast<size_t>(n));
        return widen(lanes);
    }
    static HWY_INLINE V widen(const int8_t* p) {
        const hn::Rebind<int16_t, D> d16;
        const hn::Rebind<hwy::float16_t, D> df16;
        const auto bytes = hn::LoadU(hn::Rebind<int8_t, D>(), p);
        const auto fields = hn::ShiftLeft<7>(hn::PromoteTo(d16, bytes));
        const auto mask = hn::Set(d16, static_cast<int16_t>(0xbf80));  // drops the copied sign bit
        return hn::PromoteTo(D(), hn::BitCast(df16, hn::And(fields, mask)));
    }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_ALIGN inline constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                              4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                              -2.0f, -3.0f, -4.0f, -6.0f};

// kLanes values from the nibbles at column col; cols is a multiple of 32, so there are no partial
// ones. Every lane shifts its nibble out of a broadcast word and looks it up in a register.
HWY_INLINE V load_e2m1(const uint8_t* row, int64_t col) {
    const hn::RebindToUnsigned<D> d32;
    const auto word_at = [=](int64_t byte) HWY_ATTR {
        uint32_t word;
        std::memcpy(&word, row + col / 2 + byte, sizeof(word));
        return hn::Set(d32, word);
    };
    const auto shift = hn::And(hn::ShiftLeft<2>(hn::Iota(d32, 0)), hn::Set(d32, 31u));
    const auto table = hn::Load(D(), kE2m1);
#if HWY_TARGET == HWY_AVX3
    const auto words = hn::IfThenElse(hn::FirstN(d32, 8), word_at(0), word_at(4));
    const auto nibble = hn::And(hn::Shr(words, shift), hn::Set(d32, 15u));
    return hn::TableLookupLanes(table, hn::IndicesFromVec(D(), nibble));
#else
    const auto bits = hn::Shr(word_at(0), shift);
    const auto magnitude = hn::And(bits, hn::Set(d32, 7u));
    const auto sign = hn::And(hn::ShiftLeft<28>(bits), hn::Set(d32, 0x80000000u));
    return hn::Or(hn::TableLookupLanes(table, hn::IndicesFromVec(D(), magnitude)),
                  hn::BitCast(D(), sign));
#endif
}

#else

// Upper bytes of the fp16 for each E2M1 nibble: 0 .5 1 1.5 2 3 4 6, then the negatives.
HWY_ALIGN inline constexpr uint8_t kE2m1AsF16[16] = {
    0x00, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, 0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4, 0xc6};

HWY_INLINE V load_e2m1(const uint8_t* row, int64_t col) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> df16;
    const uint8_t* p = row + col / 2;
#if HWY_TARGET == HWY_SCALAR
    const uint8_t nibble = static_cast<uint8_t>(col % 2 == 0 ? *p & 15 : *p >> 4);
    const auto upper = hn::Set(hn::Rebind<uint8_t, D>(), kE2m1AsF16[nibble]);
#else
    const hn::Rebind<uint8_t, D> d8;
    const hn::Half<decltype(d8)> d8_half;
    const auto pairs = hn::ZeroExtendVector(d8, hn::LoadU(d8_half, p));
    const auto low = hn::And(pairs, hn::Set(d8, uint8_t{15}));
    const auto high = hn::And(hn::ShiftRight<4>(pairs), hn::Set(d8, uint8_t{15}));
    const auto table = hn::Load(hn::FixedTag<uint8_t, 16>(), kE2m1AsF16);
    const auto upper = hn::TableLookupBytes(table, hn::InterleaveLower(d8, low, high));
#endif
    const auto bits = hn::ShiftLeft<8>(hn::PromoteTo(d16, upper));
    return hn::PromoteTo(D(), hn::BitCast(df16, bits));
}

#endif

struct Nvfp4Row {
    static constexpr int64_t kSpan = 16;
    static constexpr bool kHasScale = true;
    const uint8_t* data;
    const uint8_t* scales;
    float global_scale;

    Nvfp4Row(const MatrixView& w, int64_t row)
        : data(row_start<uint8_t>(w, row, 2)),
          scales(reinterpret_cast<const uint8_t*>(w.scales) + row * w.cols / kSpan),
          global_scale(w.global_scale) {}
    HWY_INLINE V scale(int64_t span) const {
        return broadcast(kE4m3ToF32[scales[span]] * global_scale);
    }
    HWY_INLINE const std::byte* at(int64_t col) const {
        return reinterpret_cast<const std::byte*>(data + col / 2);
    }
    HWY_INLINE V load(int64_t col) const { return load_e2m1(data, col); }
    HWY_INLINE V load_partial(int64_t, int64_t) const { return hn::Zero(D()); }
};

struct Mxfp4Row {
    static constexpr int64_t kSpan = 32;
    static constexpr bool kHasScale = true;
    const uint8_t* data;
    const uint8_t* scales;

    Mxfp4Row(const MatrixView& w, int64_t row)
        : data(row_start<uint8_t>(w, row, 2)),
          scales(reinterpret_cast<const uint8_t*>(w.scales) + row * w.cols / kSpan) {}
    HWY_INLINE V scale(int64_t span) const {
        const uint32_t exponent = scales[span];
        const uint32_t bits = exponent == 0 ? 0x00400000u : exponent << 23;  // 0 means 2^-127
        return broadcast(std::bit_cast<float>(bits));
    }
    HWY_INLINE const std::byte* at(int64_t col) const {
        return reinterpret_cast<const std::byte*>(data + col / 2);
    }
    HWY_INLINE V load(int64_t col) const { return load_e2m1(data, col); }
    HWY_INLINE V load_partial(int64_t, int64_t) const { return hn::Zero(D()); }
};

// Short rows end before the hardware has seen a stream. A matrix is contiguous, so looking this far
// ahead of each row meets the rows that come next.
inline constexpr int64_t kPrefetchBytes = 4096;

// Calls use(col, n, weights[kR]) for the columns [begin, end) of kR rows, in order, with the scales
// applied; n is kLanes but for the last call. begin is a multiple of kLanes.
template <class Row, size_t kR, class Use>
HWY_INLINE void for_each_vector(const std::array<Row, kR>& rows, int64_t begin, int64_t end,
                                Use use) {
    for (int64_t col = begin; col < end;) {
        const int64_t span = col / Row::kSpan;
        const int64_t span_end = HWY_MIN((span + 1) * Row::kSpan, end);
        V scale[kR];
        for (size_t r = 0; r < kR; ++r) scale[r] = rows[r].scale(span);
        V weights[kR];
        for (; col + kLanes <= span_end; col += kLanes) {
            for (size_t r = 0; r < kR; ++r) {
                hwy::Prefetch(rows[r].at(col) + kPrefetchBytes);
                weights[r] = rows[r].load(col);
                if (Row::kHasScale) weights[r] = hn::Mul(weights[r], scale[r]);
            }
            use(col, kLanes, weights);
        }
        if (col < span_end) {
            const int64_t rest = span_end - col;
            for (size_t r = 0; r < kR; ++r) {
                weights[r] = rows[r].load_partial(col, rest);
                if (Row::kHasScale) weights[r] = hn::Mul(weights[r], scale[r]);
            }
            use(col, rest, weights);
            col = span_end;
        }
    }
}

template <class Row, size_t kR>
HWY_INLINE std::array<Row, kR> rows_from(const MatrixView& w, int64_t first) {
    return [&]<size_t... kI>(std::index_sequence<kI...>) HWY_ATTR {
        return std::array<Row, kR>{Row(w, first + static_cast<int64_t>(kI))...};
    }
    (std::make_index_sequence<kR>());
}

// Rows [row, row + rows) and columns [col, col + cols) of a matrix; col is a multiple of kLanes.
struct Block {
    int64_t row, rows;
    int64_t col, cols;
};

template <class Row, size_t kR>
HWY_INLINE void widen_rows(const MatrixView& w, const Block& block, float* out, int64_t stride) {
    const auto put = [=](int64_t col, int64_t n, const V(&weights)[kR]) HWY_ATTR {
        for (size_t r = 0; r < kR; ++r) {
            float* to = out + static_cast<int64_t>(r) * stride + (col - block.col);
            if (n == kLanes) {
                store(weights[r], to);
            } else {
                store_partial(weights[r], to, n);
            }
        }
    };
    for_each_vector(rows_from<Row, kR>(w, block.row), block.col, block.col + block.cols, put);
}

// out[rows, cols] with the given stride = the block's weights in fp32.
template <class Row>
HWY_INLINE void widen_block(const MatrixView& w, Block block, float* out, int64_t stride) {
    constexpr int64_t kTogether = 4;
    const int64_t end = block.row + block.rows;
    for (; block.row + kTogether <= end; block.row += kTogether, out += kTogether * stride) {
        widen_rows<Row, kTogether>(w, block, out, stride);
    }
    for (; block.row < end; ++block.row, out += stride) widen_rows<Row, 1>(w, block, out, stride);
}

// Calls f with the row type of the format as its template argument.
template <class F>
HWY_INLINE void with_row_type(WeightFormat format, F f) {
    switch (format) {
        case WeightFormat::kF32:
            return f.template operator()<F32Row>();
        case WeightFormat::kBf16:
            return f.template operator()<Bf16Row>();
        case WeightFormat::kFp8Tile:
            return f.template operator()<Fp8Row>();
        case WeightFormat::kNvfp4:
            return f.template operator()<Nvfp4Row>();
        case WeightFormat::kMxfp4:
            return f.template operator()<Mxfp4Row>();
    }
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

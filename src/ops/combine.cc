#include "k3pod/ops/combine.h"

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/combine.cc"
#include "hwy/foreach_target.h"
//
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

// Parts that meet in registers: a row of out is written once for so many, and read again only for
// what is beyond.
inline constexpr size_t kPartsAtOnce = 8;
inline constexpr int64_t kVectorsAtOnce = 4;

// What the parts bring for one row of out; a part's row is fp32 or bf16, the other pointer null.
struct Addends {
    std::array<const float*, kPartsAtOnce> f32;
    std::array<const Bf16*, kPartsAtOnce> bf16;
    size_t count = 0;
};

// The sums start from zero and not from the first part: -0 becomes 0, however many parts there are.
template <int64_t kVectors>
HWY_INLINE void add_columns(const Addends& addends, bool is_first, int64_t col, float* out) {
    V sum[kVectors];
    for (int64_t i = 0; i < kVectors; ++i) {
        sum[i] = is_first ? hn::Zero(D()) : load(out + col + i * kLanes);
    }
    const auto add = [&](const auto* row) HWY_ATTR {
        for (int64_t i = 0; i < kVectors; ++i) {
            sum[i] = hn::Add(sum[i], load(row + col + i * kLanes));
        }
    };
    for (size_t p = 0; p < addends.count; ++p) {
        if (addends.bf16[p] != nullptr) {
            add(addends.bf16[p]);
        } else {
            add(addends.f32[p]);
        }
    }
    for (int64_t i = 0; i < kVectors; ++i) store(sum[i], out + col + i * kLanes);
}

HWY_INLINE void add_last_columns(const Addends& addends, bool is_first, int64_t col, int64_t n,
                                 float* out) {
    V sum = is_first ? hn::Zero(D()) : load_partial(out + col, n);
    for (size_t p = 0; p < addends.count; ++p) {
        sum = hn::Add(sum, addends.bf16[p] != nullptr ? load_partial(addends.bf16[p] + col, n)
                                                      : load_partial(addends.f32[p] + col, n));
    }
    store_partial(sum, out + col, n);
}

HWY_INLINE void add_row(const Addends& addends, bool is_first, int64_t width, float* out) {
    int64_t col = 0;
    for (; col + kVectorsAtOnce * kLanes <= width; col += kVectorsAtOnce * kLanes) {
        add_columns<kVectorsAtOnce>(addends, is_first, col, out);
    }
    for (; col + kLanes <= width; col += kLanes) add_columns<1>(addends, is_first, col, out);
    if (col < width) add_last_columns(addends, is_first, col, width - col, out);
}

void add_parts(const CombineArgs& args, std::span<const PartialRows> parts, bool is_first) {
    std::array<size_t, kPartsAtOnce> next{};  // by part: its first row that is not used yet
    for (int32_t row = 0; row < args.rows; ++row) {
        Addends addends;
        for (size_t p = 0; p < parts.size(); ++p) {
            const PartialRows& part = parts[p];
            const bool has_row =
                part.rows.empty() || (next[p] < part.rows.size() && part.rows[next[p]] == row);
            if (!has_row) continue;
            const size_t at = next[p]++ * static_cast<size_t>(args.latent);
            addends.f32[addends.count] = part.f32.empty() ? nullptr : part.f32.data() + at;
            addends.bf16[addends.count] = part.bf16.empty() ? nullptr : part.bf16.data() + at;
            ++addends.count;
        }
        add_row(addends, is_first, args.latent, args.out.data() + int64_t{row} * args.latent);
    }
}

void add_all_parts(const CombineArgs& args) {
    size_t begin = 0;
    do {
        const size_t count = std::min(kPartsAtOnce, args.parts.size() - begin);
        add_parts(args, args.parts.subspan(begin, count), begin == 0);
        begin += count;
    } while (begin < args.parts.size());
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "k3pod/base/check.h"

namespace k3pod::ops {

HWY_EXPORT(add_all_parts);

namespace {

void check_part(const CombineArgs& args, const PartialRows& part) {
    K3POD_CHECK(part.f32.empty() || part.bf16.empty(), "a part is fp32 or bf16, not both");
    const int64_t num_rows = part.rows.empty() ? args.rows : std::ssize(part.rows);
    const int64_t num_values = std::ssize(part.f32) + std::ssize(part.bf16);
    K3POD_CHECK(num_values == num_rows * args.latent, "a part must be [its rows, L]");
    int64_t before = -1;
    for (const uint16_t row : part.rows) {
        K3POD_CHECK(row > before, "a part's rows must ascend");
        before = row;
    }
    K3POD_CHECK(before < args.rows, "a part names a row past the end");
}

}  // namespace

void combine(const CombineArgs& args) {
    K3POD_CHECK(std::ssize(args.out) == int64_t{args.rows} * args.latent, "out must be [R, L]");
    for (const PartialRows& part : args.parts) check_part(args, part);
    HWY_DYNAMIC_DISPATCH(add_all_parts)(args);
}

}  // namespace k3pod::ops
#endif

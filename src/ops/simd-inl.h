// Vector helpers shared by the ops. Highway includes this once per instruction set, hence no
// #pragma once. Names are those of the including op's HWY_NAMESPACE.

#if defined(K3POD_OPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3POD_OPS_SIMD_INL_H_
#undef K3POD_OPS_SIMD_INL_H_
#else
#define K3POD_OPS_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "k3pod/base/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));

HWY_INLINE V load(const float* p) {
    return hn::LoadU(D(), p);
}
HWY_INLINE void store(V v, float* p) {
    hn::StoreU(v, D(), p);
}
HWY_INLINE V broadcast(float v) {
    return hn::Set(D(), v);
}
HWY_INLINE float sum_lanes(V v) {
    return hn::GetLane(hn::SumOfLanes(D(), v));
}

#if HWY_TARGET != HWY_SCALAR
// Sum of the blocks of four lanes: halves onto each other until one block is left.
template <class DV>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> add_blocks(DV, hn::Vec<DV> v) {
    if constexpr (hn::MaxLanes(DV()) == 4) {
        return v;
    } else {
        const hn::Half<DV> half;
        return add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
    }
}
#endif

// out[i] = sum of the lanes of v[i]. One order of addition for each, whatever the others hold.
HWY_INLINE void sum_lanes_of_four(const V* v, float* out) {
#if HWY_TARGET == HWY_SCALAR
    for (int i = 0; i < 4; ++i) out[i] = hn::GetLane(v[i]);
#else
    // Two rounds of transpose-and-add within blocks of four lanes, then the blocks are added up.
    const D d;
    const hn::Repartition<uint64_t, D> d64;
    const V ab = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
    const V cd = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
    const auto ab64 = hn::BitCast(d64, ab);
    const auto cd64 = hn::BitCast(d64, cd);
    const V abcd = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab64, cd64)),
                           hn::BitCast(d, hn::InterleaveUpper(d64, ab64, cd64)));
    hn::StoreU(add_blocks(d, abcd), hn::FixedTag<float, 4>(), out);
#endif
}

// The first n < kLanes elements, zeros behind. Never touches memory past p + n.
HWY_INLINE V load_partial(const float* p, int64_t n) {
    HWY_ALIGN float lanes[kLanes] = {};
    std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return hn::Load(D(), lanes);
}

HWY_INLINE void store_partial(V v, float* p, int64_t n) {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(v, D(), lanes);
    std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

// bf16 is the upper half of an fp32: widening is a shift.
using D16 = hn::Rebind<uint16_t, D>;

HWY_INLINE V load(const Bf16* p) {
    const hn::RebindToUnsigned<D> d32;
    const auto halves = hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(p));
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, halves)));
}

HWY_INLINE V load_partial(const Bf16* p, int64_t n) {
    HWY_ALIGN Bf16 lanes[kLanes] = {};
    std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(Bf16));
    return load(lanes);
}

// Rounds to nearest even in the upper half of each lane, the bits of k3pod::to_bf16.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_to_bf16(V v) {
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::BitCast(d32, v);
    const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto rounded = hn::Add(bits, hn::Add(is_odd, hn::Set(d32, 0x7fffu)));
    // A carry out of a NaN's fraction would make a number of it.
    const auto quiet = hn::Or(bits, hn::Set(d32, 0x00400000u));
    return hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), quiet, rounded);
}

HWY_INLINE void store(V v, Bf16* p) {
    const auto upper = hn::ShiftRight<16>(round_to_bf16(v));
    hn::StoreU(hn::TruncateTo(D16(), upper), D16(), reinterpret_cast<uint16_t*>(p));
}

HWY_INLINE void store_partial(V v, Bf16* p, int64_t n) {
    HWY_ALIGN Bf16 lanes[kLanes];
    store(v, lanes);
    std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(Bf16));
}

// Clamping below loses NaN on some instruction sets: put it back.
HWY_INLINE V keep_nan(V x, V y) {
    return hn::IfThenElse(hn::IsNaN(x), x, y);
}

HWY_INLINE V exp(V x) {
    const D d;
    return keep_nan(x, hn::Exp(d, hn::Min(x, broadcast(88.7f))));
}

HWY_INLINE V sigmoid(V x) {
    const V one = broadcast(1.0f);
    return hn::Div(one, hn::Add(one, exp(hn::Neg(x))));
}

HWY_INLINE V tanh(V x) {
    const D d;
    // Beyond 10 the result is 1 to the last bit.
    const V limited = hn::Max(hn::Min(x, broadcast(10.0f)), broadcast(-10.0f));
    return keep_nan(x, hn::Tanh(d, limited));
}

// y[i] = f(x[i]) for n elements, fp32 or bf16; y may be x.
template <class In, class Out, class F>
HWY_INLINE void map(const In* x, Out* y, int64_t n, F f) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(f(load(x + i)), y + i);
    if (i < n) store_partial(f(load_partial(x + i, n - i)), y + i, n - i);
}

// y[i] = f(a[i], b[i]); y may be a or b.
template <class F>
HWY_INLINE void map2(const float* a, const float* b, float* y, int64_t n, F f) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(f(load(a + i), load(b + i)), y + i);
    if (i < n) {
        const int64_t rest = n - i;
        store_partial(f(load_partial(a + i, rest), load_partial(b + i, rest)), y + i, rest);
    }
}

// Two accumulators hide part of the latency; the order depends on n alone.
HWY_INLINE float dot(const float* a, const float* b, int64_t n) {
    V even = hn::Zero(D());
    V odd = even;
    int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
        even = hn::MulAdd(load(a + i), load(b + i), even);
        odd = hn::MulAdd(load(a + i + kLanes), load(b + i + kLanes), odd);
    }
    for (; i < n; i += kLanes) {
        const int64_t rest = n - i;
        const V x = rest < kLanes ? load_partial(a + i, rest) : load(a + i);
        const V y = rest < kLanes ? load_partial(b + i, rest) : load(b + i);
        even = hn::MulAdd(x, y, even);
    }
    return sum_lanes(hn::Add(even, odd));
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#include "k3pod/ops/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise.cc"
#include "hwy/foreach_target.h"
//
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

void silu_all(const float* x, float* y, int64_t n) {
    map(x, y, n, [](V v) HWY_ATTR { return hn::Mul(v, sigmoid(v)); });
}

void sigmoid_all(const float* x, float* y, int64_t n) {
    map(x, y, n, [](V v) HWY_ATTR { return sigmoid(v); });
}

void add_all(const float* x, float* y, int64_t n) {
    map2(x, y, y, n, [](V a, V b) HWY_ATTR { return hn::Add(a, b); });
}

void to_bf16_all(const float* x, Bf16* y, int64_t n) {
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    // Two vectors at a time fill one.
    const hn::Repartition<uint16_t, D> d16;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
        const auto low = hn::BitCast(d16, round_to_bf16(load(x + i)));
        const auto high = hn::BitCast(d16, round_to_bf16(load(x + i + kLanes)));
        hn::StoreU(hn::ConcatOdd(d16, high, low), d16, reinterpret_cast<uint16_t*>(y + i));
    }
#endif
    map(x + i, y + i, n - i, [](V v) HWY_ATTR { return v; });
}

void to_f32_all(const Bf16* x, float* y, int64_t n) {
    map(x, y, n, [](V v) HWY_ATTR { return v; });
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "k3pod/base/check.h"

namespace k3pod::ops {

HWY_EXPORT(silu_all);
HWY_EXPORT(sigmoid_all);
HWY_EXPORT(add_all);
HWY_EXPORT(to_bf16_all);
HWY_EXPORT(to_f32_all);

namespace {

template <class A, class B>
int64_t common_size(std::span<A> x, std::span<B> y) {
    K3POD_CHECK(x.size() == y.size(), "x and y must be of equal length");
    return std::ssize(x);
}

}  // namespace

void silu(std::span<const float> x, std::span<float> y) {
    HWY_DYNAMIC_DISPATCH(silu_all)(x.data(), y.data(), common_size(x, y));
}

void sigmoid(std::span<const float> x, std::span<float> y) {
    HWY_DYNAMIC_DISPATCH(sigmoid_all)(x.data(), y.data(), common_size(x, y));
}

void add(std::span<const float> x, std::span<float> y) {
    HWY_DYNAMIC_DISPATCH(add_all)(x.data(), y.data(), common_size(x, y));
}

void to_bf16(std::span<const float> x, std::span<Bf16> y) {
    HWY_DYNAMIC_DISPATCH(to_bf16_all)(x.data(), y.data(), common_size(x, y));
}

void to_f32(std::span<const Bf16> x, std::span<float> y) {
    HWY_DYNAMIC_DISPATCH(to_f32_all)(x.data(), y.data(), common_size(x, y));
}

}  // namespace k3pod::ops
#endif

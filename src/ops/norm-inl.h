// RMSNorm of one row, shared by the ops that contain one. Included once per instruction set.

#if defined(K3POD_OPS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3POD_OPS_NORM_INL_H_
#undef K3POD_OPS_NORM_INL_H_
#else
#define K3POD_OPS_NORM_INL_H_
#endif

#include <cmath>

#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

// 1 / sqrt(mean(x^2) + eps)
HWY_INLINE float inverse_rms(const float* x, int64_t width, float eps) {
    return 1.0f / std::sqrt(dot(x, x, width) / static_cast<float>(width) + eps);
}

// y = weight * x * inverse_rms(x); y may be x.
HWY_INLINE void norm_row(const float* x, const float* weight, int64_t width, float eps, float* y) {
    const V scale = broadcast(inverse_rms(x, width, eps));
    map2(x, weight, y, width, [scale](V v, V w) HWY_ATTR { return hn::Mul(w, hn::Mul(v, scale)); });
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

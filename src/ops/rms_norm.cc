#include "k3pod/ops/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rms_norm.cc"
#include "hwy/foreach_target.h"
//
#include "ops/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

void norm_rows(int64_t tokens, int64_t width, const float* weight, float eps, const float* x,
               float* y) {
    for (int64_t t = 0; t < tokens; ++t) norm_row(x + t * width, weight, width, eps, y + t * width);
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "k3pod/base/check.h"

namespace k3pod::ops {

HWY_EXPORT(norm_rows);

void rms_norm(int32_t tokens, std::span<const float> weight, float eps, std::span<const float> x,
              std::span<float> y) {
    const int64_t width = std::ssize(weight);
    K3POD_CHECK(std::ssize(x) == tokens * width, "x must be [T, width]");
    K3POD_CHECK(y.size() == x.size(), "y must be [T, width]");
    HWY_DYNAMIC_DISPATCH(norm_rows)(tokens, width, weight.data(), eps, x.data(), y.data());
}

}  // namespace k3pod::ops
#endif

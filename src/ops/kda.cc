#include "k3pod/ops/kda.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kda.cc"
#include "hwy/foreach_target.h"
//
#include "ops/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

struct Taps {
    V tap[kKdaConvKernel];
};

// weight is [P, 4], so the taps of neighbouring channels are interleaved.
HWY_INLINE Taps load_taps(const float* weight, int64_t channels) {
    HWY_ALIGN float lanes[kLanes * kKdaConvKernel] = {};
    const float* p = weight;
    if (channels < kLanes) {
        std::memcpy(lanes, weight, static_cast<size_t>(channels * kKdaConvKernel) * sizeof(float));
        p = lanes;
    }
    Taps taps;
    hn::LoadInterleaved4(D(), p, taps.tap[0], taps.tap[1], taps.tap[2], taps.tap[3]);
    return taps;
}

// All tokens of one vector of channels; the last three inputs stay in registers.
HWY_INLINE void convolve_channels(const KdaShortConvArgs& args, int64_t width, int64_t c,
                                  int64_t n) {
    const auto read = [n](const float* p)
                          HWY_ATTR { return n == kLanes ? load(p) : load_partial(p, n); };
    const auto write = [n](V v, float* p) HWY_ATTR {
        if (n == kLanes) return store(v, p);
        store_partial(v, p, n);
    };
    const Taps taps = load_taps(args.weight.data() + c * kKdaConvKernel, n);
    float* window = args.window.data() + c;
    V u0 = read(window);
    V u1 = read(window + width);
    V u2 = read(window + 2 * width);
    for (int64_t t = 0; t < args.tokens; ++t) {
        const V u3 = read(args.x.data() + t * width + c);
        V sum = hn::Mul(taps.tap[0], u0);
        sum = hn::MulAdd(taps.tap[1], u1, sum);
        sum = hn::MulAdd(taps.tap[2], u2, sum);
        sum = hn::MulAdd(taps.tap[3], u3, sum);
        write(hn::Mul(sum, sigmoid(sum)), args.y.data() + t * width + c);
        u0 = u1;
        u1 = u2;
        u2 = u3;
    }
    write(u0, window);
    write(u1, window + width);
    write(u2, window + 2 * width);
}

void convolve(const KdaShortConvArgs& args) {
    const int64_t width = std::ssize(args.weight) / kKdaConvKernel;
    for (int64_t c = 0; c < width; c += kLanes) {
        convolve_channels(args, width, c, HWY_MIN(kLanes, width - c));
    }
}

// x = x * scale / sqrt(sum(x^2) + eps) for each row of width floats.
void normalize(float* x, int64_t rows, int64_t width, float eps, float scale) {
    for (int64_t r = 0; r < rows; ++r, x += width) {
        const V factor = broadcast(scale / std::sqrt(dot(x, x, width) + eps));
        map(x, x, width, [factor](V v) HWY_ATTR { return hn::Mul(v, factor); });
    }
}

void gate(const KdaGateArgs& args) {
    const int64_t heads = std::ssize(args.a_log);
    const int64_t head_dim = std::ssize(args.dt_bias) / heads;
    const V bound = broadcast(args.lower_bound);
    for (int64_t h = 0; h < heads; ++h) {
        const V rate = broadcast(std::exp(args.a_log[h]));
        const float* bias = args.dt_bias.data() + h * head_dim;
        for (int64_t t = 0; t < args.tokens; ++t) {
            const int64_t at = (t * heads + h) * head_dim;
            map2(args.f.data() + at, bias, args.log_decay.data() + at, head_dim,
                 [=](V f, V b)
                     HWY_ATTR { return hn::Mul(bound, sigmoid(hn::Mul(rate, hn::Add(f, b)))); });
        }
    }
}

void gated_norm(const KdaGatedNormArgs& args) {
    const int64_t head_dim = std::ssize(args.weight);
    for (int64_t at = 0; at < std::ssize(args.o); at += head_dim) {
        float* y = args.y.data() + at;
        norm_row(args.o.data() + at, args.weight.data(), head_dim, args.eps, y);
        map2(y, args.g.data() + at, y, head_dim,
             [](V v, V g) HWY_ATTR { return hn::Mul(v, sigmoid(g)); });
    }
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "k3pod/base/check.h"
#include "k3pod/ops/elementwise.h"

namespace k3pod::ops {

HWY_EXPORT(convolve);
HWY_EXPORT(normalize);
HWY_EXPORT(gate);
HWY_EXPORT(gated_norm);

void kda_short_conv(const KdaShortConvArgs& args) {
    const size_t width = args.weight.size() / kKdaConvKernel;
    const size_t size = static_cast<size_t>(args.tokens) * width;
    K3POD_CHECK(args.weight.size() == width * kKdaConvKernel, "conv weight must be [P, 4]");
    K3POD_CHECK(args.x.size() == size && args.y.size() == size, "x and y must be [T, P]");
    K3POD_CHECK(args.window.size() == 3 * width, "the conv window must be [3, P]");
    HWY_DYNAMIC_DISPATCH(convolve)(args);
}

void kda_normalize_qk(int32_t head_dim, float eps, std::span<float> q, std::span<float> k) {
    K3POD_CHECK(head_dim > 0 && q.size() % static_cast<size_t>(head_dim) == 0,
                "q must be [T, heads, D]");
    K3POD_CHECK(q.size() == k.size(), "q and k must be of equal shape");
    const int64_t rows = std::ssize(q) / head_dim;
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    HWY_DYNAMIC_DISPATCH(normalize)(q.data(), rows, head_dim, eps, scale);
    HWY_DYNAMIC_DISPATCH(normalize)(k.data(), rows, head_dim, eps, 1.0f);
}

void kda_gate(const KdaGateArgs& args) {
    const size_t size = static_cast<size_t>(args.tokens) * args.dt_bias.size();
    K3POD_CHECK(!args.a_log.empty() && args.dt_bias.size() % args.a_log.size() == 0,
                "dt_bias must be [heads * D]");
    K3POD_CHECK(args.f.size() == size && args.log_decay.size() == size,
                "f and log_decay must be [T, P]");
    HWY_DYNAMIC_DISPATCH(gate)(args);
}

void kda_beta(std::span<float> beta) {
    sigmoid(beta, beta);
}

void kda_gated_norm(const KdaGatedNormArgs& args) {
    K3POD_CHECK(!args.weight.empty() && args.o.size() % args.weight.size() == 0,
                "o must be [T, heads, D]");
    K3POD_CHECK(args.o.size() == args.g.size() && args.o.size() == args.y.size(),
                "o, g and y must be of equal shape");
    HWY_DYNAMIC_DISPATCH(gated_norm)(args);
}

}  // namespace k3pod::ops
#endif

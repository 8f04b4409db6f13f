#include "k3pod/ops/mla.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mla.cc"
#include "hwy/foreach_target.h"
//
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

void output_gate(const float* g, float* o, int64_t n) {
    map2(o, g, o, n, [](V v, V x) HWY_ATTR { return hn::Mul(v, sigmoid(x)); });
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <array>

#include "k3pod/base/check.h"
#include "k3pod/ops/elementwise.h"
#include "k3pod/ops/linear.h"
#include "k3pod/ops/rms_norm.h"

namespace k3pod::ops {

HWY_EXPORT(output_gate);

namespace {

// Floats in a [T, heads, width] tensor.
size_t volume(int32_t tokens, const MlaShape& shape, int32_t width) {
    return static_cast<size_t>(tokens) * static_cast<size_t>(shape.heads) *
           static_cast<size_t>(width);
}

void check_kv_b(const MlaShape& shape, const MatrixView& kv_b) {
    K3POD_CHECK(kv_b.rows == shape.heads * (shape.nope + shape.value) && kv_b.cols == shape.rank,
                "kv_b must be [heads * (nope + value), rank]");
}

}  // namespace

void mla_write_latents(const MlaWriteLatentsArgs& args) {
    const auto width = static_cast<size_t>(args.shape.cache_width());
    const auto rank = static_cast<size_t>(args.shape.rank);
    K3POD_CHECK(args.shape.rank <= kMlaMaxRank, "the latent rank exceeds kMlaMaxRank");
    K3POD_CHECK(args.kv.size() == static_cast<size_t>(args.tokens) * width,
                "kv must be [T, rank + rope]");
    K3POD_CHECK(args.norm_weight.size() == rank, "norm_weight must be [rank]");
    K3POD_CHECK(args.position >= 0 && int64_t{args.position} + args.tokens <=
                                          std::ssize(args.cache.pages) * args.cache.page_tokens,
                "the pages must cover every position written");
    std::array<float, kMlaMaxRank> normed;
    const std::span<float> latent(normed.data(), rank);
    for (int32_t t = 0; t < args.tokens; ++t) {
        const auto row = args.kv.subspan(static_cast<size_t>(t) * width, width);
        const int32_t position = args.position + t;
        const auto page = args.cache.pages[static_cast<size_t>(position / args.cache.page_tokens)];
        const auto slot = static_cast<size_t>(position % args.cache.page_tokens);
        const auto out = page.subspan(slot * width, width);
        rms_norm(1, args.norm_weight, args.eps, row.first(rank), latent);
        to_bf16(latent, out.first(rank));
        to_bf16(row.subspan(rank), out.subspan(rank));
    }
}

void mla_absorb_query(const MlaAbsorbQueryArgs& args) {
    const MlaShape& s = args.shape;
    check_kv_b(s, args.kv_b);
    K3POD_CHECK(args.q.size() == volume(args.tokens, s, s.query_width()),
                "q must be [T, heads, nope + rope]");
    K3POD_CHECK(args.latent_q.size() == volume(args.tokens, s, s.cache_width()),
                "latent_q must be [T, heads, rank + rope]");
    const int64_t q_stride = int64_t{s.heads} * s.query_width();
    const int64_t out_stride = int64_t{s.heads} * s.cache_width();
    for (int32_t h = 0; h < s.heads; ++h) {
        const float* q = args.q.data() + int64_t{h} * s.query_width();
        float* out = args.latent_q.data() + int64_t{h} * s.cache_width();
        const int32_t begin = h * (s.nope + s.value);
        linear_band_transposed({args.kv_b, begin, begin + s.nope}, args.tokens, {q, q_stride},
                               {out, out_stride});
        for (int32_t t = 0; t < args.tokens; ++t) {
            std::copy_n(q + t * q_stride + s.nope, s.rope, out + t * out_stride + s.rank);
        }
    }
}

void mla_expand_values(const MlaExpandValuesArgs& args) {
    const MlaShape& s = args.shape;
    check_kv_b(s, args.kv_b);
    K3POD_CHECK(args.latent_out.size() == volume(args.tokens, s, s.rank),
                "latent_out must be [T, heads, rank]");
    K3POD_CHECK(args.o.size() == volume(args.tokens, s, s.value), "o must be [T, heads, value]");
    for (int32_t h = 0; h < s.heads; ++h) {
        const int32_t begin = h * (s.nope + s.value) + s.nope;
        linear_band({args.kv_b, begin, begin + s.value}, args.tokens,
                    {args.latent_out.data() + int64_t{h} * s.rank, int64_t{s.heads} * s.rank},
                    {args.o.data() + int64_t{h} * s.value, int64_t{s.heads} * s.value});
    }
}

void mla_output_gate(std::span<const float> g, std::span<float> o) {
    K3POD_CHECK(g.size() == o.size(), "g and o must be of equal shape");
    HWY_DYNAMIC_DISPATCH(output_gate)(g.data(), o.data(), std::ssize(o));
}

}  // namespace k3pod::ops
#endif

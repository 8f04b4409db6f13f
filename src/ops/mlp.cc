#include "k3pod/ops/mlp.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mlp.cc"
#include "hwy/foreach_target.h"
//
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

HWY_INLINE V soft_limit(V x, float limit) {
    return hn::Mul(broadcast(limit), tanh(hn::Mul(x, broadcast(1.0f / limit))));
}

void situ_all(const SituParams& params, const float* gate, const float* up, float* y, int64_t n) {
    const SituParams p = params;
    map2(gate, up, y, n, [p](V g, V u) HWY_ATTR {
        return hn::Mul(hn::Mul(soft_limit(g, p.beta), sigmoid(g)), soft_limit(u, p.linear_beta));
    });
}

void add_scaled(float scale, const float* x, float* y, int64_t n) {
    const V s = broadcast(scale);
    map2(x, y, y, n, [s](V a, V b) HWY_ATTR { return hn::MulAdd(s, a, b); });
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "k3pod/base/check.h"
#include "k3pod/ops/elementwise.h"
#include "k3pod/ops/linear.h"

namespace k3pod::ops {

HWY_EXPORT(situ_all);
HWY_EXPORT(add_scaled);

void situ(const SituParams& params, std::span<const float> gate, std::span<const float> up,
          std::span<float> y) {
    K3POD_CHECK(params.beta > 0 && params.linear_beta > 0, "SiTU needs both betas above 0");
    K3POD_CHECK(gate.size() == y.size() && up.size() == y.size(),
                "gate, up and y must be of equal length");
    HWY_DYNAMIC_DISPATCH(situ_all)(params, gate.data(), up.data(), y.data(), std::ssize(y));
}

void mlp(const MlpArgs& args) {
    const int32_t width = args.gate.rows;
    const auto size = static_cast<size_t>(args.tokens) * static_cast<size_t>(width);
    K3POD_CHECK(args.up.rows == width && args.down.cols == width,
                "gate, up and down must agree on the width");
    K3POD_CHECK(args.scratch.size() >= 2 * size, "scratch must hold [2, T, width]");
    const auto gate = args.scratch.first(size);
    const auto up = args.scratch.subspan(size, size);
    linear(args.gate, args.tokens, args.x, gate);
    linear(args.up, args.tokens, args.x, up);
    situ(args.situ, gate, up, gate);
    linear(args.down, args.tokens, gate, args.y);
}

namespace {

// Rows that go through an expert together: enough to share the widened weights, few enough that the
// scratch of the widest shard stays small.
constexpr int64_t kGroupRows = 64;

// gather -> mlp -> scatter of at most kGroupRows rows.
void run_rows(const GroupedExpertsArgs& args, const ExpertGroup& group,
              std::span<const WeightedRow> rows) {
    const auto latent = static_cast<size_t>(args.latent);
    const auto x = args.scratch.first(rows.size() * latent);
    const auto y = args.scratch.subspan(x.size(), x.size());
    const auto inner = args.scratch.subspan(2 * x.size());
    for (size_t i = 0; i < rows.size(); ++i) {
        K3POD_CHECK(rows[i].row >= 0 && rows[i].row < args.rows,
                    "an entry names a row past the end");
        to_f32(args.latents.subspan(static_cast<size_t>(rows[i].row) * latent, latent),
               x.subspan(i * latent, latent));
    }
    mlp({.tokens = static_cast<int32_t>(rows.size()),
         .gate = group.w1,
         .up = group.w3,
         .down = group.w2,
         .situ = args.situ,
         .x = x,
         .scratch = inner,
         .y = y});
    for (size_t i = 0; i < rows.size(); ++i) {
        float* out = args.out.data() + static_cast<size_t>(rows[i].row) * latent;
        HWY_DYNAMIC_DISPATCH(add_scaled)
        (rows[i].weight, y.data() + i * latent, out, args.latent);
    }
}

}  // namespace

int64_t grouped_experts_scratch_floats(int32_t latent, int32_t max_width) {
    return kGroupRows * 2 * (int64_t{latent} + max_width);
}

void grouped_experts(const GroupedExpertsArgs& args) {
    const auto size = static_cast<size_t>(args.rows) * static_cast<size_t>(args.latent);
    K3POD_CHECK(args.latents.size() == size && args.out.size() == size,
                "latents and out must be [R, L]");
    std::fill(args.out.begin(), args.out.end(), 0.0f);
    for (const ExpertGroup& group : args.groups) {
        K3POD_CHECK(
            std::ssize(args.scratch) >= grouped_experts_scratch_floats(args.latent, group.w1.rows),
            "scratch is too small for the widest shard");
        for (size_t i = 0; i < group.rows.size(); i += kGroupRows) {
            const size_t n = std::min<size_t>(kGroupRows, group.rows.size() - i);
            run_rows(args, group, group.rows.subspan(i, n));
        }
    }
}

}  // namespace k3pod::ops
#endif

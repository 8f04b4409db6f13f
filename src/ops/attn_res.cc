#include "k3pod/ops/attn_res.h"

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attn_res.cc"
#include "hwy/foreach_target.h"
//
#include "ops/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3pod::ops::HWY_NAMESPACE {

inline constexpr int64_t kMaxCandidates = kMaxAttnResBlocks + 1;

struct Candidates {
    std::array<const float*, kMaxCandidates> rows;
    std::array<float, kMaxCandidates> weights;
    int64_t count = 0;
};

HWY_INLINE void softmax(float* values, int64_t n) {
    const float largest = *std::max_element(values, values + n);
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
        values[i] = std::exp(values[i] - largest);
        sum += values[i];
    }
    for (int64_t i = 0; i < n; ++i) values[i] /= sum;
}

HWY_INLINE void mix_row(const Candidates& candidates, int64_t width, float* out) {
    const auto weighted = [&](int64_t i, int64_t n) HWY_ATTR {
        V sum = hn::Zero(D());
        for (int64_t c = 0; c < candidates.count; ++c) {
            const float* row = candidates.rows[c] + i;
            const V x = n == kLanes ? load(row) : load_partial(row, n);
            sum = hn::MulAdd(broadcast(candidates.weights[c]), x, sum);
        }
        return sum;
    };
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) store(weighted(i, kLanes), out + i);
    if (i < width) store_partial(weighted(i, width - i), out + i, width - i);
}

void mix_rows(const AttnResMixArgs& args) {
    const int64_t width = std::ssize(args.mixer);
    Candidates candidates;
    candidates.count = std::ssize(args.blocks) + 1;
    for (int64_t t = 0; t < args.tokens; ++t) {
        for (int64_t c = 0; c < candidates.count; ++c) {
            const bool is_prefix = c + 1 == candidates.count;
            const float* row = (is_prefix ? args.prefix : args.blocks[c]).data() + t * width;
            candidates.rows[c] = row;
            candidates.weights[c] =
                dot(row, args.mixer.data(), width) * inverse_rms(row, width, args.eps);
        }
        softmax(candidates.weights.data(), candidates.count);
        float* out = args.out.data() + t * width;
        mix_row(candidates, width, out);
        if (!args.norm_weight.empty()) {
            norm_row(out, args.norm_weight.data(), width, args.norm_eps, out);
        }
    }
}

}  // namespace k3pod::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "k3pod/base/check.h"
#include "k3pod/ops/rms_norm.h"

namespace k3pod::ops {

HWY_EXPORT(mix_rows);

namespace {

void check_args(const AttnResMixArgs& args) {
    const size_t size = static_cast<size_t>(args.tokens) * args.mixer.size();
    K3POD_CHECK(args.blocks.size() <= kMaxAttnResBlocks, "too many AttnRes blocks");
    K3POD_CHECK(args.prefix.size() == size && args.out.size() == size,
                "prefix and out must be [T, H]");
    for (const auto& block : args.blocks) {
        K3POD_CHECK(block.size() == size, "every AttnRes block must be [T, H]");
    }
    K3POD_CHECK(args.norm_weight.empty() || args.norm_weight.size() == args.mixer.size(),
                "norm_weight must be [H] or empty");
}

}  // namespace

void attn_res_mix(const AttnResMixArgs& args) {
    check_args(args);
    if (!args.blocks.empty()) {
        HWY_DYNAMIC_DISPATCH(mix_rows)(args);
    } else if (!args.norm_weight.empty()) {
        rms_norm(args.tokens, args.norm_weight, args.norm_eps, args.prefix, args.out);
    } else if (args.out.data() != args.prefix.data()) {
        std::copy(args.prefix.begin(), args.prefix.end(), args.out.begin());
    }
}

}  // namespace k3pod::ops
#endif

#include "k3pod/ops/router.h"

#include <array>
#include <cmath>
#include <limits>

#include "k3pod/base/check.h"
#include "k3pod/ops/elementwise.h"

namespace k3pod::ops {
namespace {

// The K best values seen so far, best first; an equal value goes behind those that came earlier.
class TopK {
  public:
    explicit TopK(std::span<uint16_t> ids) : ids_(ids) {}

    void offer(uint16_t id, float value) {
        if (count_ == ids_.size()) {
            if (!(value > values_[count_ - 1])) return;
            --count_;
        }
        size_t at = count_++;
        for (; at > 0 && value > values_[at - 1]; --at) {
            values_[at] = values_[at - 1];
            ids_[at] = ids_[at - 1];
        }
        values_[at] = value;
        ids_[at] = id;
    }

  private:
    std::span<uint16_t> ids_;
    std::array<float, kMaxTopK> values_;
    size_t count_ = 0;
};

void choose(std::span<const float> scores, std::span<const float> bias, std::span<uint16_t> ids) {
    TopK best(ids);
    for (size_t e = 0; e < scores.size(); ++e) {
        const float value = scores[e] + bias[e];
        // NaN loses every comparison; as -inf it still fills a place when nothing better is there.
        best.offer(static_cast<uint16_t>(e),
                   std::isnan(value) ? -std::numeric_limits<float>::infinity() : value);
    }
}

void weigh(std::span<const float> scores, std::span<const uint16_t> ids, float scaling,
           std::span<float> weights) {
    float sum = 0;
    for (const uint16_t id : ids) sum += scores[id];
    for (size_t i = 0; i < ids.size(); ++i) {
        weights[i] = scores[ids[i]] / (sum + 1e-20f) * scaling;
    }
}

void check_args(const RouterArgs& args) {
    const auto tokens = static_cast<size_t>(args.tokens);
    const auto experts = static_cast<size_t>(args.num_experts);
    const size_t picks = tokens * static_cast<size_t>(args.top_k);
    K3POD_CHECK(args.num_experts > 0 && args.num_experts <= kMaxExperts,
                "num_experts is too large");
    K3POD_CHECK(args.top_k > 0 && args.top_k <= kMaxTopK && args.top_k <= args.num_experts,
                "top_k must be in [1, min(num_experts, kMaxTopK)]");
    K3POD_CHECK(args.logits.size() == tokens * experts, "logits must be [T, E]");
    K3POD_CHECK(args.bias.size() == experts, "bias must be [E]");
    K3POD_CHECK(args.experts.size() == picks && args.weights.size() == picks,
                "experts and weights must be [T, K]");
}

}  // namespace

void route(const RouterArgs& args) {
    check_args(args);
    const auto num_experts = static_cast<size_t>(args.num_experts);
    const auto top_k = static_cast<size_t>(args.top_k);
    std::array<float, kMaxExperts> buffer;
    const std::span<float> scores(buffer.data(), num_experts);
    for (size_t t = 0; t < static_cast<size_t>(args.tokens); ++t) {
        sigmoid(args.logits.subspan(t * num_experts, num_experts), scores);
        const auto ids = args.experts.subspan(t * top_k, top_k);
        choose(scores, args.bias, ids);
        weigh(scores, ids, args.scaling, args.weights.subspan(t * top_k, top_k));
    }
}

}  // namespace k3pod::ops

#include "k3pod/sample/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "k3pod/base/check.h"
#include "sample/float_ops.h"
#include "sample/penalties.h"
#include "sample/random_bits.h"
#include "sample/ranked_weights.h"

namespace k3pod {
namespace {

// Below this the division would only overflow; vLLM draws the line at the same place.
constexpr float kGreedyTemperature = 1e-5f;
constexpr float kNever = -std::numeric_limits<float>::infinity();

Status not_finite(std::span<const float> logits, int64_t position) {
    int32_t num_nan = 0, num_inf = 0, first = -1;
    for (size_t id = 0; id < logits.size(); ++id) {
        const bool is_nan = std::isnan(logits[id]);
        const bool is_inf = std::isinf(logits[id]) && logits[id] > 0;
        num_nan += is_nan;
        num_inf += is_inf;
        if (first < 0 && (is_nan || is_inf)) first = static_cast<int32_t>(id);
    }
    return internal_error(fmt::format(
        "the model's logits for generated token {} are not finite: {} NaN and {} +inf among {} "
        "ids, "
        "the first at id {}; nothing can be drawn from them. Check the checkpoint and the nodes",
        position, num_nan, num_inf, logits.size(), first));
}

Status nothing_to_draw(size_t vocab, int64_t position, size_t num_banned) {
    return internal_error(fmt::format(
        "no token can be drawn for generated token {}: all {} logits are -inf, or banned "
        "({} stop ids before min_tokens)",
        position, vocab, num_banned));
}

float logprob_of(float logit, double log_sum) {
    return std::max(kMinLogprob, static_cast<float>(static_cast<double>(logit) - log_sum));
}

// The `count` largest logits, best first, ties by id. Insertion: almost every id fails the one
// comparison with the last entry.
std::vector<TokenLogprob> best_of(std::span<const float> logits, size_t count, double log_sum) {
    std::vector<TokenLogprob> best;
    best.reserve(count + 1);
    float least = kNever;
    for (size_t id = 0; id < logits.size() && count > 0; ++id) {
        if (best.size() == count && logits[id] <= least) continue;
        const auto place = std::find_if(best.begin(), best.end(), [&](const TokenLogprob& entry) {
            return entry.logprob < logits[id];
        });
        best.insert(place, {static_cast<int32_t>(id), logits[id]});
        if (best.size() > count) best.pop_back();
        least = best.back().logprob;
    }
    for (TokenLogprob& entry : best) entry.logprob = logprob_of(entry.logprob, log_sum);
    return best;
}

// floor(a * b / 2^64): scales 64 random bits to a range without bias worth mentioning.
uint64_t multiply_high(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

}  // namespace

struct SamplerWorkspace::Impl {
    explicit Impl(int32_t vocab) : adjusted(static_cast<size_t>(vocab)), ranked(vocab) {}

    std::vector<float> adjusted;  // [V] logits after penalties, bias and bans
    RankedWeights ranked;
};

SamplerWorkspace::SamplerWorkspace(int32_t vocab) : impl_(std::make_unique<Impl>(vocab)) {}
SamplerWorkspace::~SamplerWorkspace() = default;

struct Sampler::Impl {
    SamplingParams params;
    Penalties penalties;
    SamplerWorkspace::Impl& work;

    std::span<const float> adjust(std::span<const float> logits, std::span<const int32_t> banned);
    int32_t choose(std::span<const float> logits, float max, int64_t position);
    void add_logprobs(std::span<const float> logits, SampledToken& token) const;
};

// The logits themselves when nothing changes them.
std::span<const float> Sampler::Impl::adjust(std::span<const float> logits,
                                             std::span<const int32_t> banned) {
    if (!penalties.are_active() && banned.empty()) return logits;
    std::copy(logits.begin(), logits.end(), work.adjusted.begin());
    penalties.apply(work.adjusted);
    for (const int32_t id : banned) work.adjusted[static_cast<size_t>(id)] = kNever;
    return work.adjusted;
}

int32_t Sampler::Impl::choose(std::span<const float> logits, float max, int64_t position) {
    if (params.temperature < kGreedyTemperature) return first_index_of(logits, max);

    RankedWeights& ranked = work.ranked;
    scaled_exp(logits, max, 1.0f / params.temperature, ranked.weights());
    ranked.rank();
    RankedWeights::Group kept = ranked.all();
    if (params.top_k > 0) kept = ranked.first(params.top_k);
    if (params.top_p < 1.0f) {
        const double wanted = static_cast<double>(params.top_p) * static_cast<double>(kept.mass);
        kept = ranked.reaching(static_cast<uint64_t>(std::ceil(wanted)), kept);
    }
    if (params.min_p > 0.0f) {
        const RankedWeights::Group likely = ranked.at_least(params.min_p);
        if (likely.count < kept.count) kept = likely;
    }
    const uint64_t bits = random_bits(params.seed, static_cast<uint64_t>(position));
    return ranked.id_at(multiply_high(bits, kept.mass));
}

void Sampler::Impl::add_logprobs(std::span<const float> logits, SampledToken& token) const {
    const double log_sum = log_sum_exp(logits, max_of(logits));
    token.logprob = {token.id, logprob_of(logits[static_cast<size_t>(token.id)], log_sum)};
    const auto wanted = static_cast<size_t>(params.num_logprobs);
    token.top = best_of(logits, std::min(wanted, logits.size()), log_sum);
}

Sampler::Sampler(const SamplingParams& params, std::span<const int32_t> prompt,
                 SamplerWorkspace& workspace)
    : impl_(std::make_unique<Impl>(Impl{
          params, Penalties(params, prompt, static_cast<int32_t>(workspace.impl_->adjusted.size())),
          *workspace.impl_})) {}
Sampler::~Sampler() = default;

Result<SampledToken> Sampler::draw(std::span<const float> logits, int64_t position,
                                   std::span<const int32_t> banned) {
    K3POD_CHECK(logits.size() == impl_->work.adjusted.size(), "logits have the workspace's vocab");
    if (!is_drawable(logits)) return not_finite(logits, position);
    const std::span<const float> adjusted = impl_->adjust(logits, banned);
    const float max = max_of(adjusted);
    if (max == kNever) return nothing_to_draw(logits.size(), position, banned.size());

    SampledToken token;
    token.id = impl_->choose(adjusted, max, position);
    impl_->penalties.count(token.id);
    if (impl_->params.num_logprobs >= 0) impl_->add_logprobs(logits, token);
    return token;
}

}  // namespace k3pod

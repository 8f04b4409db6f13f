#include "k3pod/ops/attn_res.h"

#include <cmath>
#include <cstring>

#include "tests/unit/ops/every_target.h"

namespace k3pod::ops {
namespace {

using testing::f32_sum_tolerance;
using testing::poisoned;

constexpr float kEps = 1e-5f;

std::vector<std::span<const float>> spans_of(const std::vector<std::vector<float>>& blocks) {
    return {blocks.begin(), blocks.end()};
}

// One token's mixture, candidate by candidate.
std::vector<double> exact_mix(const std::vector<std::span<const float>>& candidates,
                              std::span<const float> mixer) {
    std::vector<double> logits;
    for (const auto& c : candidates) {
        double dot = 0;
        double squares = 0;
        for (size_t i = 0; i < mixer.size(); ++i) {
            dot += double{c[i]} * mixer[i];
            squares += double{c[i]} * c[i];
        }
        logits.push_back(dot /
                         std::sqrt(squares / static_cast<double>(mixer.size()) + double{kEps}));
    }
    double sum = 0;
    for (const double l : logits) sum += std::exp(l);
    std::vector<double> mix(mixer.size(), 0.0);
    for (size_t c = 0; c < candidates.size(); ++c) {
        for (size_t i = 0; i < mix.size(); ++i)
            mix[i] += std::exp(logits[c]) / sum * candidates[c][i];
    }
    return mix;
}

class AttnRes : public EveryTarget {};

TEST_P(AttnRes, mixes_blocks_and_prefix_by_softmax) {
    constexpr int32_t kTokens = 3;
    for (const int64_t width : {5, 64, 131}) {
        for (const size_t num_blocks : {1u, 2u, 8u}) {
            std::vector<std::vector<float>> blocks(num_blocks);
            for (auto& b : blocks) b = random.normals(kTokens * width, 3.0f);
            const auto prefix = random.normals(kTokens * width, 3.0f);
            const auto mixer = random.normals(width, 0.3f);
            auto out = poisoned(kTokens * width);
            const auto block_spans = spans_of(blocks);
            attn_res_mix({.tokens = kTokens,
                          .blocks = block_spans,
                          .prefix = prefix,
                          .mixer = mixer,
                          .eps = kEps,
                          .out = out});
            for (int64_t t = 0; t < kTokens; ++t) {
                std::vector<std::span<const float>> candidates;
                for (const auto& b : block_spans) candidates.push_back(b.subspan(t * width, width));
                candidates.push_back(std::span(prefix).subspan(t * width, width));
                const auto mix = exact_mix(candidates, mixer);
                for (int64_t i = 0; i < width; ++i) {
                    // A softmax weight inherits the error of its logit, at most about 15 here.
                    ASSERT_NEAR(out[t * width + i], mix[i], f32_sum_tolerance(width, 15 * 3));
                }
            }
        }
    }
}

TEST_P(AttnRes, is_the_prefix_itself_without_blocks) {
    const auto prefix = random.normals(2 * 37);
    const auto mixer = random.normals(37);
    auto out = poisoned(2 * 37);
    attn_res_mix({.tokens = 2, .prefix = prefix, .mixer = mixer, .eps = kEps, .out = out});
    EXPECT_EQ(out, prefix);
}

TEST_P(AttnRes, follows_a_dominant_candidate) {
    const std::vector<float> block{1.0f, 0.0f};
    const std::vector<float> prefix{0.0f, 5.0f};
    const std::vector<std::span<const float>> blocks{block};
    std::vector<float> out(2);
    attn_res_mix({.tokens = 1,
                  .blocks = blocks,
                  .prefix = prefix,
                  .mixer = std::vector<float>{100.0f, -100.0f},
                  .eps = 0.0f,
                  .out = out});
    EXPECT_EQ(out, block);
}

TEST_P(AttnRes, weighs_equal_logits_equally) {
    const std::vector<float> block{2.0f, 4.0f};
    const std::vector<float> prefix{4.0f, -2.0f};
    const std::vector<std::span<const float>> blocks{block};
    std::vector<float> out(2);
    attn_res_mix({.tokens = 1,
                  .blocks = blocks,
                  .prefix = prefix,
                  .mixer = std::vector<float>{0.0f, 0.0f},
                  .eps = kEps,
                  .out = out});
    EXPECT_EQ(out, (std::vector<float>{3.0f, 1.0f}));
}

TEST_P(AttnRes, norms_the_mixture_when_asked) {
    constexpr int64_t kWidth = 45;
    const auto block = random.normals(2 * kWidth);
    const auto prefix = random.normals(2 * kWidth);
    const auto weight = random.normals(kWidth);
    const std::vector<std::span<const float>> with_block{block};
    for (const auto& blocks : {std::vector<std::span<const float>>{}, with_block}) {
        AttnResMixArgs args{
            .tokens = 2, .blocks = blocks, .prefix = prefix, .mixer = weight, .eps = kEps};
        auto mix = poisoned(2 * kWidth);
        args.out = mix;
        attn_res_mix(args);
        auto normed = poisoned(2 * kWidth);
        args.out = normed;
        args.norm_weight = weight;
        args.norm_eps = 1e-3f;
        attn_res_mix(args);
        for (int64_t t = 0; t < 2; ++t) {
            double squares = 0;
            for (int64_t i = 0; i < kWidth; ++i)
                squares += double{mix[t * kWidth + i]} * mix[t * kWidth + i];
            const double scale = 1.0 / std::sqrt(squares / kWidth + 1e-3);
            for (int64_t i = 0; i < kWidth; ++i) {
                const double exact = weight[i] * (mix[t * kWidth + i] * scale);
                ASSERT_NEAR(normed[t * kWidth + i], exact,
                            f32_sum_tolerance(kWidth, std::abs(exact)));
            }
        }
    }
}

TEST_P(AttnRes, may_write_over_the_prefix_and_ignores_other_tokens) {
    constexpr int64_t kWidth = 29;
    const auto block = random.normals(4 * kWidth);
    const auto prefix = random.normals(4 * kWidth);
    const auto mixer = random.normals(kWidth);
    const std::vector<std::span<const float>> blocks{block};
    auto together = prefix;
    attn_res_mix({.tokens = 4,
                  .blocks = blocks,
                  .prefix = together,
                  .mixer = mixer,
                  .eps = kEps,
                  .out = together});
    const std::vector<std::span<const float>> last_of_block{std::span(block).last(kWidth)};
    auto alone = poisoned(kWidth);
    attn_res_mix({.tokens = 1,
                  .blocks = last_of_block,
                  .prefix = std::span(prefix).last(kWidth),
                  .mixer = mixer,
                  .eps = kEps,
                  .out = alone});
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + 3 * kWidth, kWidth * sizeof(float)), 0);
}

K3POD_ON_EVERY_TARGET(AttnRes);

}  // namespace
}  // namespace k3pod::ops

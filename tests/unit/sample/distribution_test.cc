// Frequencies over many draws with fixed seeds. A statistic over its bound means a changed
// generator or a changed distribution, never bad luck: each test computes the same draws every
// time.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "k3pod/sample/sampler.h"

namespace k3pod {
namespace {

const std::vector<float> kTenths = {std::log(1.0f), std::log(2.0f), std::log(3.0f), std::log(4.0f)};

double chi_square(const std::vector<int>& counts, const std::vector<double>& expected) {
    double sum = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
        sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
    }
    return sum;
}

std::vector<int> count_draws(const SamplingParams& params, const std::vector<float>& logits,
                             int num_draws) {
    SamplerWorkspace workspace(static_cast<int32_t>(logits.size()));
    Sampler sampler(params, {}, workspace);
    std::vector<int> counts(logits.size());
    for (int position = 0; position < num_draws; ++position) {
        ++counts[static_cast<size_t>(sampler.draw(logits, position, {}).value().id)];
    }
    return counts;
}

TEST(Distribution, follows_the_softmax) {
    SamplingParams params;
    params.seed = 1;
    const std::vector<int> counts = count_draws(params, kTenths, 10'000);
    EXPECT_LT(chi_square(counts, {1000, 2000, 3000, 4000}), 16.27);  // 0.999 quantile, df 3
}

TEST(Distribution, temperature_one_half_squares_the_probabilities) {
    SamplingParams params;
    params.seed = 2;
    params.temperature = 0.5f;
    const std::vector<int> counts = count_draws(params, kTenths, 30'000);
    EXPECT_LT(chi_square(counts, {1000, 4000, 9000, 16000}), 16.27);
}

TEST(Distribution, a_cut_keeps_the_ratios_of_what_is_left) {
    SamplingParams params;
    params.seed = 3;
    params.top_k = 3;
    const std::vector<int> counts = count_draws(params, kTenths, 9'000);
    EXPECT_EQ(counts[0], 0);
    EXPECT_LT(chi_square({counts.begin() + 1, counts.end()}, {2000, 3000, 4000}), 13.82);  // df 2
}

TEST(Distribution, is_even_over_equal_ids_along_positions_and_along_seeds) {
    const std::vector<float> flat(16, 0.5f);
    SamplingParams params;
    params.seed = 42;
    const std::vector<double> expected(16, 1000.0);
    EXPECT_LT(chi_square(count_draws(params, flat, 16'000), expected), 37.70);  // df 15

    SamplerWorkspace workspace(16);
    std::vector<int> counts(16);
    for (uint64_t seed = 0; seed < 16'000; ++seed) {
        params.seed = seed;
        Sampler sampler(params, {}, workspace);
        ++counts[static_cast<size_t>(sampler.draw(flat, 0, {}).value().id)];
    }
    EXPECT_LT(chi_square(counts, expected), 37.70);
}

TEST(Distribution, neighbouring_seeds_and_positions_are_independent) {
    const std::vector<float> flat(16, 0.0f);
    SamplerWorkspace workspace(16);
    std::vector<int> pairs(256);
    for (uint64_t seed = 0; seed < 256; ++seed) {
        SamplingParams params;
        params.seed = seed;
        SamplingParams next = params;
        next.seed = seed + 1;
        Sampler first(params, {}, workspace), second(next, {}, workspace);
        for (int position = 0; position < 100; ++position) {
            const int32_t a = first.draw(flat, position + 1, {}).value().id;
            const int32_t b = second.draw(flat, position, {}).value().id;
            ++pairs[static_cast<size_t>(a * 16 + b)];
        }
    }
    EXPECT_LT(chi_square(pairs, std::vector<double>(256, 100.0)), 330.5);  // 0.999 quantile, df 255
}

TEST(Distribution, same_seed_gives_the_same_ids_whatever_else_draws) {
    const std::vector<float> flat(1000, 0.0f);
    SamplerWorkspace workspace(1000);
    SamplingParams params;
    params.seed = 7;
    Sampler alone(params, {}, workspace);
    std::vector<int32_t> expected;
    for (int position = 0; position < 50; ++position) {
        expected.push_back(alone.draw(flat, position, {}).value().id);
    }
    EXPECT_GT(std::set<int32_t>(expected.begin(), expected.end()).size(), 40u);

    SamplingParams other = params;
    other.seed = 8;
    other.top_p = 0.5f;
    Sampler again(params, {}, workspace), neighbour(other, {}, workspace);
    for (int position = 0; position < 50; ++position) {
        EXPECT_TRUE(neighbour.draw(flat, position, {}).is_ok());
        EXPECT_EQ(again.draw(flat, position, {}).value().id, expected[size_t(position)])
            << position;
        EXPECT_TRUE(neighbour.draw(flat, position + 9, {}).is_ok());
    }
}

// Ids in order of falling logit, lower id first, by a full sort: the slow way to what the sampler
// does.
std::vector<int32_t> full_order(const std::vector<float>& logits) {
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    return order;
}

size_t nucleus_size(const std::vector<float>& logits, const std::vector<int32_t>& order,
                    double top_p) {
    std::vector<double> weights;
    for (const int32_t id : order) {
        const auto [logit, best] = std::pair(logits[size_t(id)], logits[size_t(order[0])]);
        weights.push_back(std::exp(static_cast<double>(logit) - static_cast<double>(best)));
    }
    const double wanted = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
    double sum = 0;
    size_t size = 0;
    while (sum < wanted) sum += weights[size++];
    return size;
}

TEST(Distribution, agrees_with_a_full_sort_over_a_large_vocabulary) {
    constexpr int32_t kVocab = 20'000;
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = normal(random);
    const std::vector<int32_t> order = full_order(logits);

    SamplerWorkspace workspace(kVocab);
    for (const auto& [top_k, top_p] : {std::pair(0, 0.3), std::pair(25, 1.0)}) {
        SamplingParams params;
        params.top_k = top_k;
        params.top_p = static_cast<float>(top_p);
        const size_t size = top_k > 0 ? size_t(top_k) : nucleus_size(logits, order, top_p);
        const std::set<int32_t> kept(order.begin(), order.begin() + static_cast<long>(size));
        std::set<int32_t> drawn;
        Sampler sampler(params, {}, workspace);
        for (int position = 0; position < 10'000; ++position) {
            drawn.insert(sampler.draw(logits, position, {}).value().id);
        }
        EXPECT_TRUE(std::includes(kept.begin(), kept.end(), drawn.begin(), drawn.end()));
        EXPECT_EQ(drawn.size(), kept.size());
    }
}

}  // namespace
}  // namespace k3pod

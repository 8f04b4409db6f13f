#include "tests/golden/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace k3pod::testing {
namespace {

float l2_norm(std::span<const float> v) {
    double sum = 0;
    for (const float x : v) sum += double{x} * x;
    return static_cast<float>(std::sqrt(sum));
}

float logsumexp(std::span<const float> logits) {
    const float largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float x : logits) sum += std::exp(double{x} - largest);
    return largest + static_cast<float>(std::log(sum));
}

// Indices of `keys`, largest key first.
std::vector<size_t> descending_order(std::span<const float> keys) {
    std::vector<size_t> order(keys.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return keys[i]; });
    return order;
}

float selection_margin(std::span<const float> logits, std::span<const float> bias, size_t top_k) {
    std::vector<float> scores(logits.size());
    for (size_t e = 0; e < scores.size(); ++e) scores[e] = 1 / (1 + std::exp(-logits[e])) + bias[e];
    std::ranges::sort(scores, std::greater<>());
    return scores[top_k - 1] - scores[top_k];
}

void expect_routing(const GoldenRouting& want, const LayerTrace::Routing& have, float slack) {
    ASSERT_EQ(have.layer, want.layer);
    const std::vector<size_t> order = descending_order(want.weights);
    for (size_t k = 0; k < order.size(); ++k) {
        EXPECT_EQ(have.experts[k], want.experts[order[k]])
            << "layer " << want.layer << ", weight " << k;
        EXPECT_NEAR(have.weights[k], want.weights[order[k]], slack * kWeightBound)
            << "layer " << want.layer << ", expert " << want.experts[order[k]];
    }
}

}  // namespace

std::vector<GoldenCase> golden_cases() {
    auto cases = read_golden_cases(K3POD_SOURCE_DIR "/tests/golden/k3-tiny/golden.json");
    EXPECT_TRUE(cases.is_ok()) << cases.status().to_string();
    return cases.is_ok() ? std::move(cases).value() : std::vector<GoldenCase>{};
}

std::string placement_name(const PlacementCase& placement) {
    return (placement.mode == PlacementMode::kWhole ? "whole_over_" : "sliced_over_") +
           std::to_string(placement.num_holders);
}

void LayerTrace::on_layer(int32_t, std::span<const float> accumulator) {
    const auto hidden = static_cast<size_t>(tiny_.config().hidden);
    std::vector<float>& norms = norms_.emplace_back();
    for (size_t at = 0; at < accumulator.size(); at += hidden) {
        norms.push_back(l2_norm(accumulator.subspan(at, hidden)));
    }
}

void LayerTrace::on_routing(int32_t layer, const RoutingView& routing) {
    const auto top_k = static_cast<size_t>(tiny_.config().top_k);
    const auto num_experts = static_cast<size_t>(tiny_.config().num_experts);
    const Vector& bias = tiny_.weights().layers[static_cast<size_t>(layer)].moe.router_bias;
    std::vector<Routing>& rows = routing_.emplace_back();
    for (size_t row = 0; row < routing.experts.size() / top_k; ++row) {
        Routing r{.layer = layer, .experts = {}, .weights = {}, .margin = 0};
        r.margin =
            selection_margin(routing.logits.subspan(row * num_experts, num_experts), bias, top_k);
        const std::span<const float> weights = routing.weights.subspan(row * top_k, top_k);
        for (const size_t k : descending_order(weights)) {
            r.experts.push_back(routing.experts[row * top_k + k]);
            r.weights.push_back(weights[k]);
        }
        rows.push_back(std::move(r));
    }
}

int32_t argmax(std::span<const float> logits) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

float top2_gap(std::span<const float> logits) {
    const auto best = static_cast<size_t>(argmax(logits));
    const std::span<const float> before = logits.first(best), behind = logits.subspan(best + 1);
    float second = -std::numeric_limits<float>::infinity();
    for (const std::span<const float> part : {before, behind}) {
        if (!part.empty()) second = std::max(second, *std::ranges::max_element(part));
    }
    return logits[best] - second;
}

float largest_magnitude(std::span<const float> values) {
    return std::abs(*std::ranges::max_element(values, {}, [](float v) { return std::abs(v); }));
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
    float largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
}

void expect_layers(const GoldenCase& expected, const LayerTrace& trace, int32_t end_layer,
                   float slack) {
    const size_t last = trace.num_rows() - 1;
    for (size_t layer = 0; layer < static_cast<size_t>(end_layer); ++layer) {
        const float norm = expected.accumulator_l2[layer];
        EXPECT_NEAR(trace.norm(layer, last), norm, slack * kNormBound * norm)
            << "after layer " << layer;
    }
    ASSERT_EQ(trace.num_moe_layers(), expected.routing.size());
    for (size_t i = 0; i < expected.routing.size(); ++i) {
        if (expected.routing[i].layer < end_layer) {
            expect_routing(expected.routing[i], trace.routing(i, last), slack);
        }
    }
}

void expect_top_logits(const GoldenCase& expected, std::span<const float> logits, float slack) {
    const float bound = slack * kLogitBound * largest_magnitude(expected.top_logits);
    EXPECT_EQ(argmax(logits), expected.top_ids[0]);
    EXPECT_NEAR(logsumexp(logits), expected.logsumexp, bound);
    for (size_t i = 0; i < expected.top_ids.size(); ++i) {
        EXPECT_NEAR(logits[static_cast<size_t>(expected.top_ids[i])], expected.top_logits[i], bound)
            << "id " << expected.top_ids[i];
    }
}

void expect_greedy(TinyModel& tiny, const std::vector<GoldenCase>& cases) {
    int32_t num_tokens = 0, num_undecided = 0;
    for (const GoldenCase& c : cases) {
        SCOPED_TRACE(c.name);
        SequenceRun run(tiny, 512);
        std::vector<float> logits = run.feed(c.prompt_ids, SequenceChunk::Logits::kLast);
        for (const int32_t id : c.greedy_ids) {
            ASSERT_FALSE(logits.empty());
            if (top2_gap(logits) > kDecisiveGap || c.min_top2_gap > kDecisiveGap) {
                EXPECT_EQ(argmax(logits), id) << "position " << run.position();
            } else {
                ++num_undecided;
            }
            ++num_tokens;
            logits = run.feed(std::span(&id, 1), SequenceChunk::Logits::kLast);
        }
    }
    EXPECT_EQ(num_tokens, 498);
    EXPECT_EQ(num_undecided, 12);  // names and places of the story
}

}  // namespace k3pod::testing

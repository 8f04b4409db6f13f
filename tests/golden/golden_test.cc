// The engine against an independent fp64 reference: models/k3-tiny through the real loader, the
// real experts and every way of placing them. Bounds are those of the issue; nothing here may be
// loosened.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/support/golden_cases.h"
#include "tests/support/npy.h"
#include "tests/support/tiny_model.h"

namespace k3pod::testing {
namespace {

constexpr float kNormBound = 1e-3f;    // relative, L2 norm of the accumulator
constexpr float kLogitBound = 3e-3f;   // of the largest absolute logit
constexpr float kWeightBound = 2e-3f;  // absolute, routing weights
constexpr float kDecisiveGap = 0.25f;  // between the two best logits

const std::filesystem::path kModelDir = K3POD_SOURCE_DIR "/models/k3-tiny";
const std::filesystem::path kGoldenDir = K3POD_SOURCE_DIR "/tests/golden/k3-tiny";

struct PlacementCase {
    PlacementMode mode;
    int32_t num_holders;
    bool reply_f32 = false;  // false: partial sums are rounded to bf16, as on the wire
};

std::string name_of(const ::testing::TestParamInfo<PlacementCase>& info) {
    return (info.param.mode == PlacementMode::kWhole ? "whole_over_" : "sliced_over_") +
           std::to_string(info.param.num_holders) + (info.param.reply_f32 ? "_fp32" : "_bf16");
}

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

int32_t argmax(std::span<const float> logits) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

float top2_gap(std::span<const float> logits) {
    std::vector<float> best(2);
    std::ranges::partial_sort_copy(logits, best, std::greater<>());
    return best[0] - best[1];
}

float largest_magnitude(std::span<const float> values) {
    return std::abs(*std::ranges::max_element(values, {}, [](float v) { return std::abs(v); }));
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
    float largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
}

// Expert ids, heaviest first.
std::vector<uint16_t> by_weight(std::span<const uint16_t> experts, std::span<const float> weights) {
    std::vector<size_t> order(experts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, std::greater<>(), [&](size_t i) { return weights[i]; });
    std::vector<uint16_t> ids;
    for (const size_t i : order) ids.push_back(experts[i]);
    return ids;
}

// Keeps what the reference also wrote down: the last row of every layer.
class LastRowProbe final : public ForwardProbe {
  public:
    explicit LastRowProbe(const ModelConfig& config) : config_(config) {}

    void on_layer(int32_t, std::span<const float> accumulator) override {
        norms.push_back(l2_norm(accumulator.last(static_cast<size_t>(config_.hidden))));
    }
    void on_routing(int32_t layer, std::span<const uint16_t> experts,
                    std::span<const float> weights) override {
        const auto k = static_cast<size_t>(config_.top_k);
        const auto last_experts = experts.last(k);
        const auto last_weights = weights.last(k);
        routing.push_back({.layer = layer,
                           .experts = {last_experts.begin(), last_experts.end()},
                           .weights = {last_weights.begin(), last_weights.end()}});
    }

    std::vector<float> norms;
    std::vector<GoldenRouting> routing;

  private:
    const ModelConfig& config_;
};

class Golden : public ::testing::TestWithParam<PlacementCase> {
  protected:
    void SetUp() override {
        auto loaded = TinyModel::load({.dir = kModelDir,
                                       .mode = GetParam().mode,
                                       .num_holders = GetParam().num_holders,
                                       .reply_f32 = GetParam().reply_f32});
        ASSERT_TRUE(loaded) << loaded.status().to_string();
        tiny = std::move(*loaded);
        auto read = read_golden_cases(kGoldenDir / "golden.json");
        ASSERT_TRUE(read) << read.status().to_string();
        cases = std::move(*read);
        ASSERT_EQ(cases.size(), 10u);
    }

    std::unique_ptr<TinyModel> tiny;
    std::vector<GoldenCase> cases;
};

void expect_norms(const GoldenCase& expected, const LastRowProbe& found) {
    ASSERT_EQ(found.norms.size(), expected.accumulator_l2.size());
    for (size_t layer = 0; layer < found.norms.size(); ++layer) {
        EXPECT_NEAR(found.norms[layer], expected.accumulator_l2[layer],
                    kNormBound * expected.accumulator_l2[layer])
            << "after layer " << layer;
    }
}

void expect_routing(const GoldenCase& expected, const LastRowProbe& found) {
    ASSERT_EQ(found.routing.size(), expected.routing.size());
    for (size_t i = 0; i < found.routing.size(); ++i) {
        const GoldenRouting& want = expected.routing[i];
        const GoldenRouting& have = found.routing[i];
        EXPECT_EQ(have.layer, want.layer);
        EXPECT_EQ(by_weight(have.experts, have.weights), by_weight(want.experts, want.weights))
            << "layer " << want.layer;
        std::map<uint16_t, float> weight_of;
        for (size_t k = 0; k < have.experts.size(); ++k)
            weight_of[have.experts[k]] = have.weights[k];
        for (size_t k = 0; k < want.experts.size(); ++k) {
            EXPECT_NEAR(weight_of[want.experts[k]], want.weights[k], kWeightBound)
                << "layer " << want.layer << ", expert " << want.experts[k];
        }
    }
}

void expect_top_logits(const GoldenCase& expected, std::span<const float> logits) {
    const float bound = kLogitBound * largest_magnitude(expected.top_logits);
    EXPECT_EQ(argmax(logits), expected.top_ids[0]);
    EXPECT_NEAR(logsumexp(logits), expected.logsumexp, bound);
    for (size_t i = 0; i < expected.top_ids.size(); ++i) {
        EXPECT_NEAR(logits[static_cast<size_t>(expected.top_ids[i])], expected.top_logits[i], bound)
            << "id " << expected.top_ids[i];
    }
}

TEST_P(Golden, last_prompt_position_agrees_in_every_layer) {
    for (const GoldenCase& c : cases) {
        SCOPED_TRACE(c.name);
        SequenceRun run(*tiny, 512);
        LastRowProbe probe(tiny->config());
        const std::vector<float> logits =
            run.feed(c.prompt_ids, SequenceChunk::Logits::kLast, &probe);
        ASSERT_FALSE(logits.empty());
        expect_norms(c, probe);
        expect_routing(c, probe);
        expect_top_logits(c, logits);
    }
}

// Every position of `name`'s prompt, fed in chunks of `piece` tokens.
void expect_all_positions(TinyModel& tiny, const GoldenCase& c, size_t piece) {
    const Result<NpyArray> expected = read_npy(kGoldenDir / (c.name + ".logits.npy"));
    ASSERT_TRUE(expected) << expected.status().to_string();
    const auto vocab = static_cast<size_t>(tiny.config().vocab);
    ASSERT_THAT(expected->shape, ::testing::ElementsAre(std::ssize(c.prompt_ids), vocab));
    const float bound = kLogitBound * largest_magnitude(expected->values);

    SequenceRun run(tiny, 512);
    std::vector<float> logits;
    for (size_t t = 0; t < c.prompt_ids.size(); ++t) {
        if (t % piece == 0) {
            const std::span<const int32_t> rest = std::span(c.prompt_ids).subspan(t);
            logits =
                run.feed(rest.first(std::min(piece, rest.size())), SequenceChunk::Logits::kAll);
            ASSERT_FALSE(logits.empty());
        }
        const std::span<const float> have = std::span(logits).subspan(t % piece * vocab, vocab);
        const std::span<const float> want = expected->row(static_cast<int64_t>(t));
        EXPECT_EQ(argmax(have), argmax(want)) << "position " << t;
        EXPECT_LE(largest_difference(have, want), bound) << "position " << t;
    }
}

TEST_P(Golden, every_prompt_position_agrees_in_one_chunk_and_token_by_token) {
    int32_t num_cases = 0;
    for (const GoldenCase& c : cases) {
        if (c.name != "add" && c.name != "unicode") continue;
        SCOPED_TRACE(c.name);
        expect_all_positions(*tiny, c, c.prompt_ids.size());
        expect_all_positions(*tiny, c, 1);
        ++num_cases;
    }
    EXPECT_EQ(num_cases, 2);
}

// Walks the reference's own path, so that one undecided token does not hide those behind it. The
// engine would walk it too: every decided token is its own choice.
TEST_P(Golden, greedy_continuation_is_the_same_wherever_it_is_decided) {
    int32_t num_decided = 0, num_tokens = 0;
    for (const GoldenCase& c : cases) {
        SCOPED_TRACE(c.name);
        SequenceRun run(*tiny, 512);
        std::vector<float> logits = run.feed(c.prompt_ids, SequenceChunk::Logits::kLast);
        for (const int32_t id : c.greedy_ids) {
            ASSERT_FALSE(logits.empty());
            const bool is_decided = top2_gap(logits) > kDecisiveGap;
            if (is_decided || c.min_top2_gap > kDecisiveGap) {
                EXPECT_EQ(argmax(logits), id);
            }
            num_decided += is_decided;
            ++num_tokens;
            logits = run.feed(std::span(&id, 1), SequenceChunk::Logits::kLast);
        }
    }
    EXPECT_EQ(num_tokens, 498);
    EXPECT_GE(num_decided, 490);
}

using enum PlacementMode;
INSTANTIATE_TEST_SUITE_P(Placements, Golden,
                         ::testing::Values(PlacementCase{kWhole, 1, true}, PlacementCase{kWhole, 1},
                                           PlacementCase{kWhole, 2}, PlacementCase{kWhole, 3},
                                           PlacementCase{kWhole, 8}, PlacementCase{kSliced, 1},
                                           PlacementCase{kSliced, 2}, PlacementCase{kSliced, 3},
                                           PlacementCase{kSliced, 8}),
                         name_of);

}  // namespace
}  // namespace k3pod::testing

#include "k3pod/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/support/synthetic_model.h"

namespace k3pod {
namespace {

using testing::FakeExperts;
using ::testing::HasSubstr;
using testing::synthetic_config;
using testing::synthetic_weights;

using Logits = SequenceChunk::Logits;

constexpr uint64_t kSeed = 7;
constexpr int32_t kMaxRows = 192;

std::vector<int32_t> random_ids(int32_t count, uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (int32_t& id : ids) id = static_cast<int32_t>(engine() % 101);
    return ids;
}

// A model over synthetic weights; each run of a sequence starts from a fresh state.
class ModelTest : public ::testing::Test {
  protected:
    ModelTest()
        : config(synthetic_config()),
          weights(synthetic_weights(config, kSeed)),
          store(state_shape(config, 4, 16)),
          experts(config.num_experts),
          model(std::move(Model::create(config, weights, store, kMaxRows)).value()) {}

    SequenceState acquire(int32_t tokens) { return std::move(store.acquire(tokens)).value(); }

    // Runs the chunks as one step; the logits asked for, [N, V].
    std::vector<float> step(std::vector<SequenceChunk> chunks, ForwardProbe* probe = nullptr) {
        size_t rows = 0;
        for (const SequenceChunk& chunk : chunks) {
            rows += chunk.logits == Logits::kAll ? chunk.ids.size() : chunk.logits == Logits::kLast;
        }
        std::vector<float> logits(rows * static_cast<size_t>(config.vocab), NAN);
        const Status status =
            model->forward({.step = ++num_steps, .chunks = chunks}, experts, logits, probe);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        return logits;
    }

    // All logits of `ids`, fed in chunks of the sizes given, alone in their steps.
    std::vector<float> run(const std::vector<int32_t>& ids, const std::vector<int32_t>& sizes) {
        SequenceState state = acquire(static_cast<int32_t>(ids.size()));
        std::vector<float> all;
        int32_t position = 0;
        for (const int32_t size : sizes) {
            const std::vector<float> logits =
                step({{.state = &state,
                       .position = position,
                       .ids = std::span(ids).subspan(static_cast<size_t>(position),
                                                     static_cast<size_t>(size)),
                       .logits = Logits::kAll}});
            all.insert(all.end(), logits.begin(), logits.end());
            position += size;
        }
        EXPECT_EQ(position, std::ssize(ids));
        store.release(std::move(state));
        return all;
    }

    // The message of a step that must be refused.
    std::string refusal(std::vector<SequenceChunk> chunks, size_t num_logits) {
        std::vector<float> logits(num_logits);
        const Status status = model->forward({.step = 1, .chunks = chunks}, experts, logits);
        EXPECT_EQ(status.code(), Code::kInvalidArgument);
        return status.message();
    }

    ModelConfig config;
    StationWeights weights;
    StateStore store;
    FakeExperts experts;
    std::unique_ptr<Model> model;
    uint64_t num_steps = 0;
};

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    float largest = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        if (!(std::abs(a[i] - b[i]) <= largest)) largest = std::abs(a[i] - b[i]);
    }
    return largest;
}

TEST_F(ModelTest, logits_are_finite_and_depend_on_the_prompt) {
    const std::vector<float> a = run(random_ids(20, 1), {20});
    const std::vector<float> b = run(random_ids(20, 2), {20});
    EXPECT_TRUE(std::ranges::all_of(a, [](float v) { return std::isfinite(v); }));
    EXPECT_GT(largest_difference(a, b), 0.1f);
}

TEST_F(ModelTest, a_prompt_split_at_multiples_of_16_gives_the_same_bits) {
    for (const int32_t length : {17, 64, 65, 77, 130}) {
        const std::vector<int32_t> ids = random_ids(length, static_cast<uint64_t>(length));
        const std::vector<float> whole = run(ids, {length});
        for (const int32_t piece : {16, 32, 48, 64}) {
            std::vector<int32_t> sizes;
            for (int32_t at = 0; at < length; at += piece)
                sizes.push_back(std::min(piece, length - at));
            EXPECT_EQ(run(ids, sizes), whole) << "length " << length << ", pieces of " << piece;
        }
    }
}

TEST_F(ModelTest, other_splits_and_single_steps_agree_up_to_rounding) {
    const std::vector<int32_t> ids = random_ids(70, 3);
    const std::vector<float> whole = run(ids, {70});
    // The two forms of the recurrence differ by fp32 rounding, which makes a value of the latent
    // cache round to the other bf16 neighbour now and then: 2^-8 of one of 32 values.
    const float bound = 3e-3f * *std::ranges::max_element(whole);
    EXPECT_LT(largest_difference(run(ids, {5, 40, 1, 24}), whole), bound);
    EXPECT_LT(largest_difference(run(ids, std::vector<int32_t>(70, 1)), whole), bound);
}

TEST_F(ModelTest, a_split_inside_a_chunk_rejoins_the_absolute_chunks) {
    // Both runs step through [5, 16) one by one; from 16 on they use the same chunks.
    const std::vector<int32_t> ids = random_ids(48, 4);
    std::vector<int32_t> by_steps = {5};
    by_steps.insert(by_steps.end(), 11, 1);
    by_steps.push_back(32);
    EXPECT_EQ(run(ids, {5, 43}), run(ids, by_steps));
}

TEST_F(ModelTest, rows_do_not_depend_on_what_else_is_in_the_step) {
    const std::vector<int32_t> a = random_ids(33, 5), b = random_ids(50, 6), c = random_ids(21, 7);
    const std::vector<float> a_alone = run(a, {32, 1});
    const std::vector<float> b_alone = run(b, {50});
    const std::vector<float> c_alone = run(c, {20, 1});

    SequenceState sa = acquire(33), sb = acquire(50), sc = acquire(21);
    step({{&sa, 0, std::span(a).first(32), Logits::kNone},
          {&sc, 0, std::span(c).first(20), Logits::kNone}});
    const std::vector<float> mixed = step({{&sc, 20, std::span(c).last(1), Logits::kLast},
                                           {&sb, 0, b, Logits::kAll},
                                           {&sa, 32, std::span(a).last(1), Logits::kLast}});
    std::vector<float> expected(c_alone.end() - config.vocab, c_alone.end());
    expected.insert(expected.end(), b_alone.begin(), b_alone.end());
    expected.insert(expected.end(), a_alone.end() - config.vocab, a_alone.end());
    EXPECT_EQ(mixed, expected);
}

TEST_F(ModelTest, only_the_rows_asked_for_get_logits_in_order) {
    const std::vector<int32_t> ids = random_ids(10, 8);
    const std::vector<float> all = run(ids, {10});
    SequenceState a = acquire(10), b = acquire(10);
    const std::vector<float> some =
        step({{&a, 0, ids, Logits::kNone}, {&b, 0, ids, Logits::kLast}});
    EXPECT_EQ(some, std::vector<float>(all.end() - config.vocab, all.end()));
}

TEST_F(ModelTest, a_recycled_state_gives_the_bits_of_a_fresh_one) {
    const std::vector<int32_t> ids = random_ids(40, 9);
    const std::vector<float> fresh = run(ids, {40});
    std::vector<SequenceState> others;
    for (uint64_t i = 0; i < 4; ++i) {
        others.push_back(acquire(4 * kPageTokens));
        const std::vector<int32_t> noise = random_ids(190, 100 + i);
        step({{&others.back(), 0, noise, Logits::kLast}});
    }
    ASSERT_EQ(store.num_free_pages(), 0);
    for (SequenceState& state : others) store.release(std::move(state));
    EXPECT_EQ(run(ids, {40}), fresh);
}

TEST_F(ModelTest, gives_the_routed_rows_of_every_moe_layer_to_the_port) {
    SequenceState state = acquire(3);
    const std::vector<int32_t> ids = random_ids(3, 10);
    step({{&state, 0, ids}});
    EXPECT_EQ(experts.num_dispatches, 5);
    EXPECT_EQ(experts.num_combines, 5);
    EXPECT_EQ(experts.last.step, 1u);
    EXPECT_EQ(experts.last.layer, 6);
    EXPECT_EQ(experts.last.rows, 3);
    EXPECT_EQ(experts.last.latent, 40);
    EXPECT_EQ(experts.last.top_k, 3);
    EXPECT_EQ(experts.last.latents.size(), 120u);
    EXPECT_EQ(experts.last.experts.size(), 9u);
    EXPECT_EQ(experts.last.weights.size(), 9u);
}

class CountingProbe final : public ForwardProbe {
  public:
    void on_layer(int32_t layer, std::span<const float> accumulator) override {
        layers.push_back(layer);
        sizes.push_back(accumulator.size());
    }
    void on_routing(int32_t layer, const RoutingView& routing) override {
        routed_layers.push_back(layer);
        num_logits.push_back(routing.logits.size());
        for (size_t i = 0; i < routing.experts.size(); i += 3) {
            weight_sums.push_back(
                std::accumulate(&routing.weights[i], &routing.weights[i] + 3, 0.0f));
        }
    }
    std::vector<int32_t> layers, routed_layers;
    std::vector<size_t> sizes, num_logits;
    std::vector<float> weight_sums;
};

TEST_F(ModelTest, shows_every_layer_and_routing_to_a_probe) {
    using ::testing::Each;
    using ::testing::ElementsAre;
    using ::testing::FloatNear;
    SequenceState state = acquire(2);
    const std::vector<int32_t> ids = random_ids(2, 11);
    CountingProbe probe;
    step({{&state, 0, ids}}, &probe);
    EXPECT_THAT(probe.layers, ElementsAre(0, 1, 2, 3, 4, 5, 6));
    EXPECT_THAT(probe.sizes, Each(96u));
    EXPECT_THAT(probe.routed_layers, ElementsAre(2, 3, 4, 5, 6));
    EXPECT_THAT(probe.num_logits, Each(20u));
    EXPECT_THAT(probe.weight_sums, Each(FloatNear(1.0f, 1e-6f)));
}

TEST_F(ModelTest, hands_a_failed_combine_to_the_caller_and_goes_on_after_it) {
    const std::vector<int32_t> ids = random_ids(12, 12);
    const std::vector<float> expected = run(ids, {12});
    SequenceState state = acquire(12);
    const std::vector<SequenceChunk> chunks = {{&state, 0, ids}};
    std::vector<float> logits(static_cast<size_t>(config.vocab));
    experts.fail_combine_of_layer = 4;
    const Status status = model->forward({.step = 9, .chunks = chunks}, experts, logits);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(status.message(), "spark-1 is gone");
    experts.fail_combine_of_layer = -1;
    EXPECT_EQ(run(ids, {12}), expected);
}

TEST_F(ModelTest, a_step_without_chunks_is_nothing) {
    EXPECT_TRUE(step({}).empty());
    EXPECT_EQ(experts.num_dispatches, 0);
}

TEST_F(ModelTest, refuses_chunks_that_cannot_run) {
    const size_t vocab = 101;
    SequenceState a = acquire(64);
    const std::vector<int32_t> ids = random_ids(10, 13), negative = {3, -1}, high = {101};
    const std::vector<int32_t> many = random_ids(kMaxRows, 14);
    SequenceState none;
    EXPECT_EQ(refusal({{&a, 0, {}}}, 0), "chunk 0 of the step: it has no tokens");
    EXPECT_THAT(refusal({{&none, 0, ids}}, vocab), HasSubstr("owns no slot"));
    EXPECT_THAT(refusal({{nullptr, 0, ids}}, vocab), HasSubstr("owns no slot"));
    EXPECT_THAT(refusal({{&a, 0, ids}, {&a, 10, ids}}, 2 * vocab),
                HasSubstr("slot 0 is in the step twice"));
    EXPECT_THAT(refusal({{&a, 55, ids}}, vocab),
                HasSubstr("tokens [55, 65) do not fit its 1 pages of 64"));
    EXPECT_THAT(refusal({{&a, -1, ids}}, vocab), HasSubstr("tokens [-1, 9) do not fit"));
    EXPECT_THAT(refusal({{&a, 0, negative}}, vocab), HasSubstr("token id -1 is not in [0, 101)"));
    EXPECT_THAT(refusal({{&a, 0, high}}, vocab), HasSubstr("token id 101 is not in [0, 101)"));
    SequenceState b = acquire(200);
    EXPECT_THAT(
        refusal({{&a, 0, ids}, {&b, 0, many}}, 2 * vocab),
        HasSubstr("chunk 1 of the step: its 192 tokens behind 10 others exceed the 192 rows"));
    EXPECT_THAT(refusal({{&a, 0, ids}}, vocab - 1),
                HasSubstr("asks for 1 rows of 101, the buffer holds 100"));
    EXPECT_EQ(experts.num_dispatches, 0);
}

TEST_F(ModelTest, create_refuses_what_does_not_fit_together) {
    const auto message = [&](const ModelConfig& c, StateStore& s, int32_t max_rows) {
        return Model::create(c, weights, s, max_rows).status().message();
    };
    EXPECT_THAT(message(config, store, 0),
                HasSubstr("rows of a step is 0; this engine supports 1 to 65535"));
    ModelConfig wide = config;
    wide.kda_head_dim = 144;
    EXPECT_THAT(message(wide, store, 8), HasSubstr("head_dim is 144"));
    ModelConfig odd = config;
    odd.kda_head_dim = 24;
    EXPECT_THAT(message(odd, store, 8), HasSubstr("multiples of 16"));
    ModelConfig kernel = config;
    kernel.conv_kernel = 3;
    EXPECT_THAT(message(kernel, store, 8), HasSubstr("short_conv_kernel_size is 3"));
    ModelConfig deep = config;
    deep.num_layers = 100;
    EXPECT_THAT(message(deep, store, 8), HasSubstr("attn_res_block_size) is 34"));
    StateShape other = store.shape();
    other.num_mla_layers = 1;
    StateStore wrong(other);
    EXPECT_THAT(message(config, wrong, 8), HasSubstr("state store"));
    weights.layers.pop_back();
    EXPECT_THAT(message(config, store, 8), HasSubstr("the weights have 6 layers, the model has 7"));
}

}  // namespace
}  // namespace k3pod

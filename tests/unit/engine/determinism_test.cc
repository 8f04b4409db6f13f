// What a request says depends on the request alone. The model here computes logits from a
// sequence's own ids; whatever else could get in (slots, order, cancelled neighbours, random
// numbers) is the engine's.

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/support/recording_sink.h"
#include "tests/support/scripted_engine.h"

namespace k3pod::testing {
namespace {

GenerationRequest random_request(std::mt19937& random) {
    GenerationRequest request;
    request.prompt.resize(1 + random() % 120);
    for (int32_t& id : request.prompt) id = static_cast<int32_t>(random() % 64);
    request.max_tokens = static_cast<int32_t>(1 + random() % 60);
    request.sampling.seed = random();
    request.sampling.temperature = static_cast<float>(random() % 3) * 0.7f;
    request.sampling.top_p = random() % 2 ? 1.0f : 0.8f;
    request.sampling.repetition_penalty = random() % 2 ? 1.0f : 1.3f;
    request.stop_ids = {3};
    return request;
}

std::vector<int32_t> run_alone(const GenerationRequest& request) {
    ScriptedEngine scripted;
    const auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(scripted.engine->submit(request, sink).is_ok());
    EXPECT_TRUE(sink->wait_finished());
    return sink->ids();
}

bool is_prefix(const std::vector<int32_t>& part, const std::vector<int32_t>& whole) {
    return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

TEST(EngineDeterminism, a_request_says_the_same_alone_and_in_a_crowd_with_cancels) {
    constexpr uint32_t kSeed = 20;
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
    std::mt19937 random(kSeed);
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < 48; ++i) requests.push_back(random_request(random));

    ScriptedEngineOptions options;
    options.limits.max_num_seqs = 16;
    options.limits.max_batch_tokens = 48;
    options.limits.queue_limit = 64;
    ScriptedEngine scripted(options);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    std::vector<bool> is_cancelled;
    for (const GenerationRequest& request : requests) {
        sinks.push_back(std::make_shared<RecordingSink>());
        is_cancelled.push_back(random() % 10 < 3);
        const RequestHandle handle = scripted.engine->submit(request, sinks.back()).value();
        if (random() % 2) {
            ASSERT_TRUE(sinks[random() % sinks.size()]->wait_tokens(1));
        }
        if (is_cancelled.back()) scripted.engine->cancel(handle);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(sinks[i]->wait_finished());
        const std::vector<int32_t> alone = run_alone(requests[i]);
        if (is_cancelled[i]) {
            EXPECT_TRUE(is_prefix(sinks[i]->ids(), alone)) << "request " << i;
        } else {
            EXPECT_EQ(sinks[i]->ids(), alone) << "request " << i;
        }
    }
    EXPECT_EQ(scripted.state.num_free_pages(), 64);
}

// Each stream repeats its own number; clients on several threads come, listen and leave.
TEST(EngineDeterminism, no_stream_hears_another_ones_word) {
    ScriptedEngineOptions options;
    options.limits.max_num_seqs = 8;
    options.limits.queue_limit = 64;
    ScriptedEngine scripted(options);
    for (int32_t word = 10; word < 60; ++word) {
        scripted.model.script({word, 1}, std::vector<int32_t>(30, word), 3);
    }
    const auto client = [&](uint32_t seed) {
        std::mt19937 random(seed);
        for (int round = 0; round < 60; ++round) {
            const auto word = static_cast<int32_t>(10 + random() % 50);
            GenerationRequest request;
            request.prompt = {word, 1};
            request.sampling.temperature = 0;
            request.max_tokens = 40;
            request.stop_ids = {3};
            const auto sink = std::make_shared<RecordingSink>();
            const RequestHandle handle = scripted.engine->submit(request, sink).value();
            const bool leaves = random() % 10 < 3;
            if (leaves) {
                EXPECT_TRUE(sink->wait_tokens(random() % 20));
                scripted.engine->cancel(handle);
            }
            EXPECT_TRUE(sink->wait_finished());
            std::vector<int32_t> expected(30, word);
            expected.push_back(3);
            EXPECT_TRUE(is_prefix(sink->ids(), expected)) << "seed " << seed;
            EXPECT_TRUE(leaves || sink->ids().size() == expected.size()) << "seed " << seed;
        }
    };
    std::vector<std::thread> clients;
    for (uint32_t seed = 0; seed < 8; ++seed) clients.emplace_back(client, seed);
    for (std::thread& thread : clients) thread.join();
    EXPECT_EQ(scripted.engine->state().num_running, 0);
}

TEST(EngineDeterminism, another_seed_says_something_else) {
    std::mt19937 random(5);
    GenerationRequest request = random_request(random);
    request.sampling = {};
    request.max_tokens = 50;
    request.ignore_eos = true;
    const std::vector<int32_t> first = run_alone(request);
    EXPECT_EQ(run_alone(request), first);
    request.sampling.seed = 1;
    EXPECT_NE(run_alone(request), first);
}

}  // namespace
}  // namespace k3pod::testing

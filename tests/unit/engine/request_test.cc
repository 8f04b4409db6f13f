// The life of a request that nobody disturbs, and of one that never gets in.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/gate.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_engine.h"

namespace k3pod::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kStopId = 9;

GenerationRequest greedy_request(std::vector<int32_t> prompt, int32_t max_tokens = 10) {
    GenerationRequest request;
    request.request_id = "r";
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    request.stop_ids = {kStopId};
    return request;
}

// Runs one request to its end.
std::shared_ptr<RecordingSink> run(ScriptedEngine& scripted, GenerationRequest request) {
    auto sink = std::make_shared<RecordingSink>();
    const auto handle = scripted.engine->submit(std::move(request), sink);
    EXPECT_TRUE(handle.is_ok()) << handle.status().to_string();
    EXPECT_TRUE(sink->wait_finished());
    return sink;
}

TEST(EngineRequest, delivers_the_stop_id_and_ends) {
    ScriptedEngine scripted;
    scripted.model.script({1, 2, 3}, {11, 12, 13}, kStopId);
    const auto sink = run(scripted, greedy_request({1, 2, 3}));
    EXPECT_THAT(sink->ids(), ElementsAre(11, 12, 13, kStopId));
    EXPECT_EQ(sink->reason(), FinishReason::kStop);
    EXPECT_TRUE(sink->status().is_ok());
    EXPECT_EQ(sink->num_scheduled(), 1);
    EXPECT_EQ(sink->num_finished(), 1);
}

TEST(EngineRequest, ends_at_max_tokens) {
    ScriptedEngine scripted;
    scripted.model.script_any({11, 12, 13}, kStopId);
    const auto two = run(scripted, greedy_request({1}, 2));
    EXPECT_THAT(two->ids(), ElementsAre(11, 12));
    EXPECT_EQ(two->reason(), FinishReason::kLength);
    // The stop id as the last token that fits is a stop.
    EXPECT_EQ(run(scripted, greedy_request({1}, 4))->reason(), FinishReason::kStop);
}

TEST(EngineRequest, bans_stop_ids_before_min_tokens) {
    ScriptedEngine scripted;
    scripted.model.script_any({11}, kStopId);
    GenerationRequest request = greedy_request({1});
    request.min_tokens = 3;
    // Where the stop id would be, all others are equal, and the lowest wins.
    EXPECT_THAT(run(scripted, request)->ids(), ElementsAre(11, 0, 0, kStopId));
}

TEST(EngineRequest, runs_past_stop_ids_when_told_to_ignore_them) {
    ScriptedEngine scripted;
    scripted.model.script_any({11}, kStopId);
    GenerationRequest request = greedy_request({1}, 4);
    request.ignore_eos = true;
    request.min_tokens = 4;
    const auto sink = run(scripted, request);
    EXPECT_THAT(sink->ids(), ElementsAre(11, kStopId, kStopId, kStopId));
    EXPECT_EQ(sink->reason(), FinishReason::kLength);
}

TEST(EngineRequest, ends_when_the_sink_has_enough) {
    ScriptedEngine scripted;
    scripted.model.script_any({11, 12, 13}, kStopId);
    auto sink = std::make_shared<RecordingSink>();
    sink->when_token = [](const SampledToken& token) { return token.id != 12; };
    ASSERT_TRUE(scripted.engine->submit(greedy_request({1}), sink).is_ok());
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_THAT(sink->ids(), ElementsAre(11, 12));
    EXPECT_EQ(sink->reason(), FinishReason::kStop);
}

TEST(EngineRequest, passes_logprobs_through) {
    ScriptedEngine scripted;
    scripted.model.script_any({11}, kStopId);
    GenerationRequest request = greedy_request({1});
    request.sampling.num_logprobs = 2;
    const auto tokens = run(scripted, request)->tokens();
    ASSERT_EQ(tokens.size(), 2u);
    EXPECT_EQ(tokens[0].logprob.id, 11);
    EXPECT_NEAR(tokens[0].logprob.logprob, 0, 1e-6);
    ASSERT_EQ(tokens[1].top.size(), 2u);
    EXPECT_EQ(tokens[1].top[0].id, kStopId);
    EXPECT_EQ(tokens[1].top[1].id, 0);
}

TEST(EngineRequest, prefills_a_long_prompt_in_aligned_pieces) {
    ScriptedEngine scripted;
    scripted.model.script_any({11}, kStopId);
    std::vector<std::pair<int32_t, size_t>> pieces;
    scripted.model.set_hook([&](const ModelStep& step) {
        pieces.emplace_back(step.chunks[0].position, step.chunks[0].ids.size());
        return Status::ok();
    });
    run(scripted, greedy_request(std::vector<int32_t>(150, 1)));
    using Piece = std::pair<int32_t, size_t>;
    EXPECT_THAT(pieces, ElementsAre(Piece(0, 64), Piece(64, 64), Piece(128, 22), Piece(150, 1)));
}

TEST(EngineRequest, numbers_steps_upwards) {
    ScriptedEngine scripted;
    scripted.model.script_any({11, 12}, kStopId);
    std::vector<uint64_t> steps;
    scripted.model.set_hook([&](const ModelStep& step) {
        steps.push_back(step.step);
        return Status::ok();
    });
    run(scripted, greedy_request({1}));
    EXPECT_THAT(steps, ElementsAre(1, 2, 3));
}

TEST(EngineRequest, gives_its_memory_back_before_it_says_that_it_ended) {
    ScriptedEngine scripted;
    scripted.model.script_any({11}, kStopId);
    for (int round = 0; round < 20; ++round) {
        run(scripted, greedy_request(std::vector<int32_t>(1000, 1)));
        EXPECT_EQ(scripted.state.num_free_pages(), 64);
        EXPECT_EQ(scripted.state.num_free_slots(), 4);
        EXPECT_EQ(scripted.engine->state().num_running, 0);
        EXPECT_EQ(scripted.engine->state().kv_usage, 0);
    }
}

struct BadRequest {
    std::function<void(GenerationRequest&)> spoil;
    const char* message;
};

TEST(EngineRequest, refuses_what_is_wrong_and_says_what) {
    ScriptedEngine scripted;
    const BadRequest cases[] = {
        {[](auto& r) { r.prompt.clear(); }, "the prompt is empty"},
        {[](auto& r) {
             r.prompt = {1, 64};
         },
         "the prompt holds token id 64 at index 1; ids of this model are in [0, 63]"},
        {[](auto& r) { r.prompt = {-1}; }, "the prompt holds token id -1 at index 0"},
        {[](auto& r) { r.max_tokens = 0; }, "max_tokens is 0; it must be at least 1"},
        {[](auto& r) { r.min_tokens = 11; }, "min_tokens is 11; it must be in [0, max_tokens 10]"},
        {[](auto& r) {
             r.stop_ids = {5, 99};
         },
         "stop_ids holds token id 99 at index 1"},
        {[](auto& r) { r.sampling.top_p = 2; }, "top_p is 2; it must be in (0, 1]"},
        {[](auto& r) { r.max_tokens = 4096; },
         "prompt of 1 tokens + max_tokens 4096 = 4097 is over this model's context of 4096"},
    };
    for (const BadRequest& bad : cases) {
        GenerationRequest request = greedy_request({1});
        bad.spoil(request);
        const auto sink = std::make_shared<RecordingSink>();
        const auto handle = scripted.engine->submit(request, sink);
        EXPECT_EQ(handle.status().code(), Code::kInvalidArgument) << bad.message;
        EXPECT_THAT(handle.status().message(), HasSubstr(bad.message));
        EXPECT_EQ(sink->num_finished(), 0);
    }
}

TEST(EngineRequest, refuses_what_the_pool_can_never_hold_and_runs_the_rest) {
    ScriptedEngineOptions options;
    options.limits.max_model_len = 16384;
    ScriptedEngine scripted(options);
    scripted.model.script_any({11}, kStopId);
    const auto sink = std::make_shared<RecordingSink>();
    const Status refused =
        scripted.engine->submit(greedy_request(std::vector<int32_t>(8000, 1)), sink).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("8010 is over the 4096 tokens that the whole cache"));
    EXPECT_EQ(run(scripted, greedy_request({1, 2}))->reason(), FinishReason::kStop);

    for (int round = 0; round < 50; ++round) {
        EXPECT_EQ(run(scripted, greedy_request(std::vector<int32_t>(4085, 1)))->num_finished(), 1);
        EXPECT_EQ(run(scripted, greedy_request(std::vector<int32_t>(4086, 1)))->num_finished(), 1);
        EXPECT_FALSE(
            scripted.engine->submit(greedy_request(std::vector<int32_t>(4087, 1)), sink).is_ok());
    }
    EXPECT_EQ(scripted.engine->state().num_waiting, 0);
}

TEST(EngineRequest, runs_two_of_60_percent_of_the_pool_one_after_the_other) {
    ScriptedEngine scripted;
    scripted.model.script_any({11, 12, 13}, kStopId);
    int32_t most_chunks = 0;
    scripted.model.set_hook([&](const ModelStep& step) {
        most_chunks = std::max(most_chunks, static_cast<int32_t>(step.chunks.size()));
        return Status::ok();
    });
    const auto first = std::make_shared<RecordingSink>(),
               second = std::make_shared<RecordingSink>();
    const auto request = greedy_request(std::vector<int32_t>(2450, 1));
    ASSERT_TRUE(scripted.engine->submit(request, first).is_ok());
    ASSERT_TRUE(scripted.engine->submit(request, second).is_ok());
    ASSERT_TRUE(first->wait_finished() && second->wait_finished());
    EXPECT_EQ(first->reason(), FinishReason::kStop);
    EXPECT_EQ(second->reason(), FinishReason::kStop);
    EXPECT_EQ(most_chunks, 1);
}

TEST(EngineRequest, refuses_when_slots_and_queue_are_full_and_takes_more_after) {
    ScriptedEngineOptions options;
    options.limits.max_num_seqs = 1;
    options.limits.queue_limit = 2;
    Gate gate;
    ScriptedEngine scripted(options);
    scripted.model.script_any({}, kStopId);
    gate.close();
    scripted.model.set_hook([&](const ModelStep&) {
        gate.pass();
        return Status::ok();
    });
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 3; ++i) {
        sinks.push_back(std::make_shared<RecordingSink>());
        ASSERT_TRUE(scripted.engine->submit(greedy_request({1}), sinks.back()).is_ok()) << i;
    }
    const auto late = std::make_shared<RecordingSink>();
    const Status full = scripted.engine->submit(greedy_request({1}), late).status();
    EXPECT_EQ(full.code(), Code::kResourceExhausted);
    EXPECT_THAT(full.message(), HasSubstr("the limit is 1 running and 2 waiting"));
    gate.open();
    for (const auto& sink : sinks) EXPECT_TRUE(sink->wait_finished());
    EXPECT_TRUE(scripted.engine->submit(greedy_request({1}), late).is_ok());
    EXPECT_TRUE(late->wait_finished());
}

TEST(EngineRequest, gives_what_context_and_pool_leave_as_the_default_limit) {
    ScriptedEngineOptions options;
    options.limits.max_model_len = 1000;
    ScriptedEngine unlimited(options);
    EXPECT_EQ(unlimited.engine->default_max_tokens(100), 900);
    EXPECT_EQ(unlimited.engine->default_max_tokens(1000), 1);
    EXPECT_EQ(unlimited.engine->default_max_tokens(2'000'000'000), 1);
    options.default_max_tokens = 256;
    ScriptedEngine limited(options);
    EXPECT_EQ(limited.engine->default_max_tokens(100), 256);
    EXPECT_EQ(limited.engine->default_max_tokens(900), 100);
    options.limits.max_model_len = 16384;
    options.default_max_tokens = 0;
    ScriptedEngine small_pool(options);
    EXPECT_EQ(small_pool.engine->default_max_tokens(96), 4000);
    EXPECT_EQ(small_pool.engine->max_model_len(), 16384);
    EXPECT_EQ(small_pool.engine->vocab_size(), 64);
}

TEST(EngineRequest, create_refuses_limits_that_contradict_the_state) {
    ScriptedEngine scripted;
    const auto message_with = [&](int32_t SchedulerLimits::*field, int32_t value) {
        EngineOptions options;
        options.limits = ScriptedEngineOptions().limits;
        options.limits.*field = value;
        const auto engine =
            Engine::create(options, scripted.model, scripted.state, scripted.experts, 64,
                           scripted.steady_clock, scripted.metrics);
        return engine.status().message();
    };
    EXPECT_THAT(message_with(&SchedulerLimits::max_num_seqs, 5),
                HasSubstr("5 sequences on 64 pages, but the state has 4 slots and 64 pages"));
    EXPECT_THAT(message_with(&SchedulerLimits::num_pages, 65), HasSubstr("on 65 pages"));
    EXPECT_THAT(message_with(&SchedulerLimits::page_tokens, 32), HasSubstr("page_tokens is 32"));
    EXPECT_THAT(message_with(&SchedulerLimits::prefill_alignment, 24),
                HasSubstr("prefill_alignment is 24; it must be a multiple of 16"));
    EXPECT_THAT(message_with(&SchedulerLimits::max_batch_tokens, 4),
                HasSubstr("max_batch_tokens is 4"));
}

}  // namespace
}  // namespace k3pod::testing

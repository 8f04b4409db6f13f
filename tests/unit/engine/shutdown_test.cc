#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <utility>

#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_engine.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kStopId = 9;

std::shared_ptr<RecordingSink> submit(ScriptedEngine& scripted) {
    GenerationRequest request;
    request.prompt = {1};
    request.sampling.temperature = 0;
    request.max_tokens = kEndless;
    request.stop_ids = {kStopId};
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(scripted.engine->submit(std::move(request), sink).is_ok());
    return sink;
}

TEST(EngineShutdown, drain_finishes_what_runs_and_waits) {
    ScriptedEngine scripted(ScriptedEngineOptions::endless(1));
    scripted.model.script_any({11, 12, 13}, kStopId);
    const auto running = submit(scripted), waiting = submit(scripted);
    EXPECT_EQ(scripted.engine->drain(std::chrono::seconds(30)), 0);
    EXPECT_EQ(running->num_finished(), 1);
    EXPECT_EQ(running->reason(), FinishReason::kStop);
    EXPECT_EQ(waiting->reason(), FinishReason::kStop);
}

TEST(EngineShutdown, drain_ends_a_step_that_is_held_at_its_limit) {
    ScriptedEngine scripted(ScriptedEngineOptions::endless(1));
    std::promise<Status> told;
    scripted.experts.when_stopped = [&, is_first = true](const Status& why) mutable {
        if (std::exchange(is_first, false)) told.set_value(why);
    };
    auto stopped = told.get_future().share();
    std::promise<void> begun;
    scripted.model.set_hook([&, stopped](const ModelStep&) {
        begun.set_value();  // A second step would throw.
        return stopped.get();
    });
    const auto held = submit(scripted);
    begun.get_future().wait();
    EXPECT_EQ(scripted.engine->drain(Nanoseconds(0)), 0) << "it failed with its step";
    EXPECT_EQ(held->status().code(), Code::kUnavailable);
    EXPECT_THAT(held->status().message(), HasSubstr("the station shut down"));
}

TEST(EngineShutdown, drain_lets_nobody_in_even_when_told_to_accept) {
    ScriptedEngine scripted;
    EXPECT_EQ(scripted.engine->drain(Nanoseconds(0)), 0);
    scripted.engine->set_accepting(true, "");
    EXPECT_FALSE(scripted.engine->state().accepts);
    GenerationRequest request;
    request.prompt = {1};
    request.max_tokens = 1;
    const Status refused =
        scripted.engine->submit(request, std::make_shared<RecordingSink>()).status();
    EXPECT_EQ(refused.code(), Code::kUnavailable);
    EXPECT_THAT(refused.message(), HasSubstr("draining"));
}

TEST(EngineShutdown, drain_fails_the_rest_at_its_limit) {
    FakeClock clock;
    ScriptedEngineOptions options = ScriptedEngineOptions::endless(1);
    options.clock = &clock;
    ScriptedEngine scripted(options);
    scripted.model.script_any({}, 5);
    const auto running = submit(scripted), waiting = submit(scripted);
    ASSERT_TRUE(running->wait_tokens(1));
    int32_t num_failed = -1;
    std::thread drainer([&] { num_failed = scripted.engine->drain(std::chrono::seconds(30)); });
    while (scripted.engine->state().accepts) std::this_thread::yield();
    EXPECT_EQ(running->num_finished(), 0);
    // Wherever the drain is between closing the door and reading the clock, 61 s are past its
    // limit.
    while (running->num_finished() == 0) {
        clock.advance(std::chrono::seconds(61));
        std::this_thread::yield();
    }
    drainer.join();
    EXPECT_EQ(num_failed, 2);
    for (const auto& sink : {running, waiting}) {
        EXPECT_EQ(sink->reason(), FinishReason::kError);
        EXPECT_EQ(sink->status().code(), Code::kUnavailable);
        EXPECT_THAT(sink->status().message(), HasSubstr("not done within 30 s"));
    }
}

TEST(EngineShutdown, destructor_ends_what_is_left) {
    auto scripted = std::make_unique<ScriptedEngine>(ScriptedEngineOptions::endless(2));
    scripted->model.script_any({}, 5);
    const auto sink = submit(*scripted);
    ASSERT_TRUE(sink->wait_tokens(1));
    scripted.reset();
    EXPECT_EQ(sink->num_finished(), 1);
    EXPECT_EQ(sink->reason(), FinishReason::kError);
    EXPECT_EQ(sink->status().code(), Code::kUnavailable);
}

TEST(EngineShutdown, destructor_answers_requests_that_never_reached_the_step_thread) {
    Gate gate;
    auto scripted = std::make_unique<ScriptedEngine>(ScriptedEngineOptions::endless(2));
    scripted->model.script_any({}, 5);
    const auto holder = std::make_shared<RecordingSink>();
    holder->when_scheduled = [&] { gate.pass(); };
    gate.close();
    GenerationRequest request;
    request.prompt = {1};
    request.max_tokens = 5;
    ASSERT_TRUE(scripted->engine->submit(request, holder).is_ok());
    ASSERT_TRUE(gate.wait_arrived(1));
    const auto late = submit(*scripted);
    std::thread destroyer([&] { scripted.reset(); });
    gate.open();
    destroyer.join();
    EXPECT_EQ(holder->num_finished(), 1);
    EXPECT_EQ(late->num_finished(), 1);
}

}  // namespace
}  // namespace k3pod::testing

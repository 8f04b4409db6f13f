// Steps that fail, logits that are not numbers, and a door that closes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/support/metric_values.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_engine.h"

namespace k3pod::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kStopId = 9;
const Status kNodeLost = unavailable("expert server spark-1 is lost: no heartbeat for 500 ms");

GenerationRequest greedy_request(std::vector<int32_t> prompt, int32_t max_tokens = 100) {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    request.stop_ids = {kStopId};
    return request;
}

std::shared_ptr<RecordingSink> submit(ScriptedEngine& scripted, std::vector<int32_t> prompt,
                                      int32_t max_tokens = 100) {
    auto sink = std::make_shared<RecordingSink>();
    const auto handle =
        scripted.engine->submit(greedy_request(std::move(prompt), max_tokens), sink);
    EXPECT_TRUE(handle.is_ok()) << handle.status().to_string();
    return sink;
}

TEST(EngineFailure, a_failed_step_ends_its_requests_and_the_engine_goes_on) {
    ScriptedEngine scripted;
    scripted.model.script_any({11, 12}, kStopId);
    scripted.model.set_hook(
        [](const ModelStep& step) { return step.step == 2 ? kNodeLost : Status::ok(); });
    const auto sink = submit(scripted, {1});
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_THAT(sink->ids(), ElementsAre(11));
    EXPECT_EQ(sink->reason(), FinishReason::kError);
    EXPECT_EQ(sink->status().code(), Code::kUnavailable);
    EXPECT_EQ(sink->status().message(), "expert server spark-1 is lost: no heartbeat for 500 ms");
    EXPECT_EQ(scripted.state.num_free_pages(), 64);
    EXPECT_EQ(metric_value(scripted.metrics, "k3pod_engine_failed_steps_total"), 1);

    const auto next = submit(scripted, {1});
    ASSERT_TRUE(next->wait_finished());
    EXPECT_THAT(next->ids(), ElementsAre(11, 12, kStopId));
}

TEST(EngineFailure, an_error_in_our_own_calls_is_not_blamed_on_the_client) {
    ScriptedEngine scripted;
    scripted.model.set_hook([](const ModelStep&) { return invalid_argument("rows: 3, not 2"); });
    const auto sink = submit(scripted, {1});
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_EQ(sink->status().code(), Code::kInternal);
    EXPECT_EQ(sink->status().message(), "rows: 3, not 2");
}

TEST(EngineFailure, a_failed_step_spares_the_requests_that_were_not_in_it) {
    Gate gate;
    ScriptedEngine scripted;
    scripted.model.script_any({11}, kStopId);
    // The first prompt fills the first step; the second one is admitted but not in it.
    scripted.model.set_hook([](const ModelStep& step) {
        if (step.step != 1) return Status::ok();
        return step.chunks.size() == 1 ? kNodeLost : internal_error("two chunks in step 1");
    });
    gate.close();
    const auto holder = std::make_shared<RecordingSink>();
    holder->when_scheduled = [&] { gate.pass(); };
    ASSERT_TRUE(
        scripted.engine->submit(greedy_request(std::vector<int32_t>(64, 1)), holder).is_ok());
    ASSERT_TRUE(gate.wait_arrived(1));
    const auto other = submit(scripted, {2});
    gate.open();
    ASSERT_TRUE(holder->wait_finished() && other->wait_finished());
    EXPECT_EQ(holder->status().message(), kNodeLost.message());
    EXPECT_EQ(other->reason(), FinishReason::kStop);
}

TEST(EngineFailure, logits_that_are_not_finite_end_their_request_alone) {
    ScriptedEngine scripted;
    scripted.model.script_any({11, 12, 13}, kStopId);
    scripted.model.set_logits_hook(
        [](std::span<const int32_t> prompt, int32_t num_generated, std::span<float> logits) {
            if (prompt[0] == 2 && num_generated == 1) {
                logits[7] = std::numeric_limits<float>::quiet_NaN();
            }
        });
    const auto healthy = submit(scripted, {1}), broken = submit(scripted, {2});
    ASSERT_TRUE(healthy->wait_finished() && broken->wait_finished());
    EXPECT_EQ(healthy->reason(), FinishReason::kStop);
    EXPECT_THAT(healthy->ids(), ElementsAre(11, 12, 13, kStopId));
    EXPECT_EQ(broken->reason(), FinishReason::kError);
    EXPECT_THAT(broken->ids(), ElementsAre(11));
    EXPECT_EQ(broken->status().code(), Code::kInternal);
    EXPECT_THAT(broken->status().message(), HasSubstr("not finite: 1 NaN"));
    EXPECT_EQ(metric_value(scripted.metrics, "k3pod_engine_refused_logits_total"), 1);
    EXPECT_EQ(scripted.state.num_free_slots(), 4);
}

TEST(EngineFailure, starts_closed_with_a_reason) {
    ScriptedEngineOptions options;
    options.accepts = false;
    ScriptedEngine scripted(options);
    const auto sink = std::make_shared<RecordingSink>();
    const Status refused = scripted.engine->submit(greedy_request({1}), sink).status();
    EXPECT_EQ(refused.code(), Code::kUnavailable);
    EXPECT_EQ(refused.message(), "loading");
    EXPECT_FALSE(scripted.engine->state().accepts);
    EXPECT_EQ(scripted.engine->state().reason, "loading");
}

TEST(EngineFailure, closing_the_door_fails_who_waits_and_lets_run_who_runs) {
    ScriptedEngineOptions options;
    options.limits.max_num_seqs = 1;
    Gate gate;
    ScriptedEngine scripted(options);
    scripted.model.script_any({11, 12}, kStopId);
    gate.close();
    scripted.model.set_hook([&](const ModelStep&) {
        gate.pass();
        return Status::ok();
    });
    const auto running = submit(scripted, {1});
    ASSERT_TRUE(gate.wait_arrived(1));
    const auto waiting = submit(scripted, {1});
    scripted.engine->set_accepting(false, "expert server spark-1 is lost");
    const auto late = std::make_shared<RecordingSink>();
    const Status refused = scripted.engine->submit(greedy_request({1}), late).status();
    EXPECT_EQ(refused.code(), Code::kUnavailable);
    EXPECT_EQ(refused.message(), "expert server spark-1 is lost");
    EXPECT_EQ(scripted.engine->state().reason, "expert server spark-1 is lost");
    // Open again before the step thread looks: who was refused stays refused, who comes now runs.
    scripted.engine->set_accepting(true, "");
    ASSERT_TRUE(scripted.engine->submit(greedy_request({1}), late).is_ok());
    gate.open();
    ASSERT_TRUE(running->wait_finished() && waiting->wait_finished() && late->wait_finished());
    EXPECT_EQ(running->reason(), FinishReason::kStop);
    EXPECT_EQ(waiting->reason(), FinishReason::kError);
    EXPECT_EQ(waiting->status().code(), Code::kUnavailable);
    EXPECT_EQ(waiting->status().message(), "expert server spark-1 is lost");
    EXPECT_EQ(late->reason(), FinishReason::kStop);
}

TEST(EngineFailure, an_open_door_may_have_a_reason_that_is_only_shown) {
    ScriptedEngine scripted;
    scripted.experts.held = "waiting for spark-1 for 3.2 s at layer 5";
    scripted.model.script_any({11}, kStopId);
    scripted.engine->set_accepting(true, "waiting for spark-1 (is gone)");
    const auto sink = submit(scripted, {1});
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_EQ(sink->reason(), FinishReason::kStop);
    EXPECT_TRUE(scripted.engine->state().accepts);
    EXPECT_EQ(scripted.engine->state().reason, "waiting for spark-1 (is gone)");
    EXPECT_EQ(scripted.engine->state().holding, "waiting for spark-1 for 3.2 s at layer 5");
    scripted.engine->set_accepting(true, "");
    EXPECT_EQ(scripted.engine->state().reason, "");
}

TEST(EngineFailure, the_state_counts_the_tokens_of_finished_steps) {
    ScriptedEngine scripted;
    scripted.model.script_any({11, 12}, kStopId);
    EXPECT_EQ(scripted.engine->state().num_generated_tokens, 0);
    ASSERT_TRUE(submit(scripted, {1})->wait_finished());
    ASSERT_TRUE(submit(scripted, {2})->wait_finished());
    // The step thread counts a step behind its last token.
    const TimePoint end = scripted.steady_clock.now() + std::chrono::seconds(10);
    while (scripted.engine->state().num_generated_tokens < 6 && scripted.steady_clock.now() < end) {
        std::this_thread::yield();
    }
    EXPECT_EQ(scripted.engine->state().num_generated_tokens, 6);
}

TEST(EngineFailure, fail_all_ends_everything_with_its_status) {
    ScriptedEngine scripted(ScriptedEngineOptions::endless(1));
    scripted.model.script_any({}, 5);
    const auto running = submit(scripted, {1}, kEndless), waiting = submit(scripted, {1}, kEndless);
    ASSERT_TRUE(running->wait_tokens(1));
    scripted.engine->fail_all(kNodeLost);
    ASSERT_TRUE(running->wait_finished() && waiting->wait_finished());
    EXPECT_EQ(running->status().message(), kNodeLost.message());
    EXPECT_EQ(waiting->status().message(), kNodeLost.message());
    EXPECT_TRUE(scripted.engine->state().accepts);
}

TEST(EngineFailure, progress_figure_grows_while_a_step_is_stuck_and_is_0_when_idle) {
    FakeClock clock;
    ScriptedEngineOptions options;
    options.clock = &clock;
    Gate gate;
    ScriptedEngine scripted(options);
    scripted.model.script_any({11}, kStopId);
    gate.close();
    scripted.model.set_hook([&](const ModelStep&) {
        gate.pass();
        return Status::ok();
    });
    clock.advance(std::chrono::hours(1));
    EXPECT_EQ(scripted.engine->state().seconds_since_progress, 0);
    const auto sink = submit(scripted, {1});
    EXPECT_EQ(scripted.engine->state().seconds_since_progress, 0);
    ASSERT_TRUE(gate.wait_arrived(1));
    clock.advance(std::chrono::seconds(12));
    EXPECT_EQ(scripted.engine->state().seconds_since_progress, 12);
    // The second step stops too; the first one counts as progress.
    sink->when_token = [&](const SampledToken&) {
        gate.close();
        return true;
    };
    gate.open();
    ASSERT_TRUE(sink->wait_tokens(1));
    ASSERT_TRUE(gate.wait_arrived(2));
    clock.advance(std::chrono::seconds(3));
    EXPECT_EQ(scripted.engine->state().seconds_since_progress, 3);
    gate.open();
    ASSERT_TRUE(sink->wait_finished());
}

}  // namespace
}  // namespace k3pod::testing

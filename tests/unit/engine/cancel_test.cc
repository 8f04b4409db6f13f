#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gate.h"
#include "tests/support/metric_values.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_engine.h"

namespace k3pod::testing {
namespace {

using ::testing::IsEmpty;

constexpr int32_t kStopId = 9;

GenerationRequest endless_request(size_t prompt_tokens) {
    GenerationRequest request;
    request.prompt.assign(prompt_tokens, 1);
    request.sampling.temperature = 0;
    request.max_tokens = kEndless;
    request.stop_ids = {kStopId};
    return request;
}

// An engine whose every step waits at a gate.
struct GatedEngine {
    explicit GatedEngine(int32_t max_num_seqs = 2)
        : scripted(ScriptedEngineOptions::endless(max_num_seqs)) {
        scripted.model.script_any({}, 5);
        scripted.model.set_hook([this](const ModelStep&) {
            gate.pass();
            return Status::ok();
        });
        gate.close();
    }
    ~GatedEngine() { gate.open(); }

    RequestHandle submit(size_t prompt_tokens, const std::shared_ptr<RecordingSink>& sink) {
        return scripted.engine->submit(endless_request(prompt_tokens), sink).value();
    }
    void expect_idle() {
        const ServiceState state = scripted.engine->state();
        EXPECT_EQ(state.num_running, 0);
        EXPECT_EQ(state.num_waiting, 0);
        EXPECT_EQ(state.kv_usage, 0);
        EXPECT_EQ(metric_value(scripted.metrics, "vllm:num_requests_running"), 0);
        EXPECT_EQ(metric_value(scripted.metrics, "vllm:num_requests_waiting"), 0);
        EXPECT_EQ(metric_value(scripted.metrics, "vllm:kv_cache_usage_perc"), 0);
    }

    Gate gate;
    ScriptedEngine scripted;
};

TEST(EngineCancel, ends_a_prefill_after_the_step_in_progress) {
    GatedEngine gated;
    const auto sink = std::make_shared<RecordingSink>();
    const RequestHandle handle = gated.submit(3000, sink);  // 47 steps of 64 tokens
    ASSERT_TRUE(gated.gate.wait_arrived(1));
    gated.scripted.engine->cancel(handle);
    gated.gate.open();
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_EQ(sink->reason(), FinishReason::kCancelled);
    EXPECT_TRUE(sink->status().is_ok());
    EXPECT_THAT(sink->ids(), IsEmpty());
    EXPECT_EQ(gated.gate.num_arrived(), 1);
    gated.expect_idle();
}

TEST(EngineCancel, ends_a_decode_after_the_step_in_progress) {
    GatedEngine gated;
    gated.gate.open();
    const auto sink = std::make_shared<RecordingSink>();
    sink->when_token = [&](const SampledToken&) {
        if (sink->ids().size() == 5) gated.gate.close();
        return true;
    };
    const RequestHandle handle = gated.submit(10, sink);
    ASSERT_TRUE(sink->wait_tokens(5));
    ASSERT_TRUE(gated.gate.wait_arrived(6));
    gated.scripted.engine->cancel(handle);
    gated.gate.open();
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_EQ(sink->reason(), FinishReason::kCancelled);
    EXPECT_EQ(sink->ids().size(), 6u);
    gated.expect_idle();
}

TEST(EngineCancel, ends_a_queued_request_without_starting_it) {
    GatedEngine gated(1);
    const auto running = std::make_shared<RecordingSink>(),
               queued = std::make_shared<RecordingSink>();
    const RequestHandle first = gated.submit(10, running);
    ASSERT_TRUE(gated.gate.wait_arrived(1));
    const RequestHandle second = gated.submit(10, queued);
    EXPECT_EQ(gated.scripted.engine->state().num_waiting, 1);
    gated.scripted.engine->cancel(second);
    gated.gate.open();
    ASSERT_TRUE(queued->wait_finished());
    EXPECT_EQ(queued->reason(), FinishReason::kCancelled);
    EXPECT_EQ(queued->num_scheduled(), 0);
    EXPECT_EQ(running->num_finished(), 0);
    gated.scripted.engine->cancel(first);
    ASSERT_TRUE(running->wait_finished());
    gated.expect_idle();
}

TEST(EngineCancel, of_a_request_that_is_not_there_does_nothing) {
    GatedEngine gated;
    const auto sink = std::make_shared<RecordingSink>();
    const RequestHandle handle = gated.submit(10, sink);
    gated.scripted.engine->cancel(handle + 1000);
    gated.scripted.engine->cancel(handle);
    gated.scripted.engine->cancel(handle);
    gated.gate.open();
    ASSERT_TRUE(sink->wait_finished());
    gated.scripted.engine->cancel(handle);
    EXPECT_EQ(sink->num_finished(), 1);
    gated.expect_idle();
}

TEST(EngineCancel, makes_room_for_who_waits) {
    GatedEngine gated(1);
    gated.gate.open();
    const auto first = std::make_shared<RecordingSink>(),
               second = std::make_shared<RecordingSink>();
    const RequestHandle handle = gated.submit(10, first);
    gated.submit(10, second);
    ASSERT_TRUE(first->wait_tokens(2));
    gated.scripted.engine->cancel(handle);
    EXPECT_TRUE(second->wait_scheduled());
}

}  // namespace
}  // namespace k3pod::testing

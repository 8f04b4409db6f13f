#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/support/metric_values.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_engine.h"

namespace k3pod::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kStopId = 9;

GenerationRequest greedy_request(size_t prompt_tokens) {
    GenerationRequest request;
    request.prompt.assign(prompt_tokens, 1);
    request.sampling.temperature = 0;
    request.max_tokens = 50;
    request.stop_ids = {kStopId};
    return request;
}

double value(const ScriptedEngine& scripted, const std::string& name,
             const std::vector<std::string>& labels = {}) {
    return metric_value(scripted.metrics, name, labels).value_or(-1);
}

std::string reason(const char* name) {
    return std::string("finished_reason=\"") + name + '"';
}

// Five requests end by themselves, five are cancelled (in prefill, decode and queue), three are
// refused.
class EngineMetricsOutcomes : public ::testing::Test {
  protected:
    static ScriptedEngineOptions options() {
        ScriptedEngineOptions options;
        options.limits.max_num_seqs = 2;
        return options;
    }
    void run_to_end(GenerationRequest request) {
        const auto sink = std::make_shared<RecordingSink>();
        ASSERT_TRUE(scripted_.engine->submit(std::move(request), sink).is_ok());
        ASSERT_TRUE(sink->wait_finished());
    }
    void cancel_five() {
        std::vector<std::shared_ptr<RecordingSink>> sinks;
        std::vector<RequestHandle> handles;
        const int num_steps = gate_.num_arrived();
        gate_.close();
        for (const size_t prompt_tokens : {500, 10, 10, 10, 10}) {
            sinks.push_back(std::make_shared<RecordingSink>());
            const auto request = greedy_request(prompt_tokens);
            handles.push_back(scripted_.engine->submit(request, sinks.back()).value());
        }
        ASSERT_TRUE(gate_.wait_arrived(num_steps + 1));
        for (const RequestHandle handle : handles) scripted_.engine->cancel(handle);
        gate_.open();
        for (const auto& sink : sinks) ASSERT_TRUE(sink->wait_finished());
    }
    void refuse_three() {
        const auto sink = std::make_shared<RecordingSink>();
        EXPECT_FALSE(scripted_.engine->submit(greedy_request(0), sink).is_ok());
        EXPECT_FALSE(scripted_.engine->submit(greedy_request(5000), sink).is_ok());
        scripted_.engine->set_accepting(false, "expert server spark-1 is lost");
        EXPECT_FALSE(scripted_.engine->submit(greedy_request(1), sink).is_ok());
    }

    Gate gate_;
    ScriptedEngine scripted_{options()};
};

TEST_F(EngineMetricsOutcomes, add_up_to_the_engine_totals) {
    scripted_.model.script_any({11, 12, 13}, kStopId);
    scripted_.model.set_hook([this](const ModelStep&) {
        gate_.pass();
        return Status::ok();
    });
    for (int i = 0; i < 4; ++i) run_to_end(greedy_request(100));
    GenerationRequest cut = greedy_request(7);
    cut.max_tokens = 2;
    run_to_end(cut);
    cancel_five();
    refuse_three();

    const std::string outcomes = "vllm:request_success_total";
    EXPECT_EQ(value(scripted_, outcomes, {reason("stop")}), 4);
    EXPECT_EQ(value(scripted_, outcomes, {reason("length")}), 1);
    EXPECT_EQ(value(scripted_, outcomes, {reason("abort")}), 5);
    EXPECT_EQ(value(scripted_, outcomes, {reason("error")}), 0);
    const std::string rejected = "k3pod_engine_rejected_requests_total";
    EXPECT_EQ(value(scripted_, rejected), 3);
    EXPECT_EQ(value(scripted_, rejected, {"code=\"invalid_argument\""}), 2);
    EXPECT_EQ(value(scripted_, rejected, {"code=\"unavailable\""}), 1);

    // 4 x 100 + 7 for those that ended; of the cancelled, only the first step of the first one ran.
    EXPECT_EQ(value(scripted_, "vllm:prompt_tokens_total"), 407 + 64);
    EXPECT_EQ(value(scripted_, "k3pod_engine_prompt_tokens_total", {reason("abort")}), 64);
    EXPECT_EQ(value(scripted_, "k3pod_engine_prompt_tokens_total"), 407 + 64);
    EXPECT_EQ(value(scripted_, "vllm:request_prompt_tokens_sum"), 407 + 64);
    EXPECT_EQ(value(scripted_, "vllm:request_prompt_tokens_count"), 10);
    EXPECT_EQ(value(scripted_, "vllm:generation_tokens_total"), 4 * 4 + 2);
    EXPECT_EQ(value(scripted_, "k3pod_engine_generation_tokens_total"), 4 * 4 + 2);
    EXPECT_EQ(value(scripted_, "vllm:request_generation_tokens_sum"), 4 * 4 + 2);
    EXPECT_EQ(value(scripted_, "vllm:e2e_request_latency_seconds_count"), 10);
    EXPECT_EQ(value(scripted_, "vllm:num_preemptions_total"), 0);
    EXPECT_EQ(value(scripted_, "vllm:num_requests_running"), 0);
    EXPECT_EQ(value(scripted_, "vllm:num_requests_waiting"), 0);
}

TEST_F(EngineMetricsOutcomes, do_not_change_by_being_read) {
    scripted_.model.script_any({11, 12, 13}, kStopId);
    run_to_end(greedy_request(100));
    const double before = value(scripted_, "vllm:generation_tokens_total");
    for (int i = 0; i < 5; ++i) (void)scripted_.metrics.expose();
    EXPECT_EQ(value(scripted_, "vllm:generation_tokens_total"), before);
    EXPECT_EQ(before, 4);
}

// A request that arrives 500 ms before it is submitted, waits 2 s, prefills in two steps of 3 s,
// and decodes two more tokens, 100 ms each.
TEST(EngineMetrics, measure_each_part_of_a_request) {
    FakeClock clock;
    ScriptedEngineOptions options;
    options.clock = &clock;
    Gate gate;
    ScriptedEngine scripted(options);
    scripted.model.script_any({11, 12}, kStopId);
    scripted.model.set_hook([&](const ModelStep& step) {
        clock.advance(step.chunks[0].ids.size() > 1 ? Nanoseconds(seconds(3)) : milliseconds(100));
        return Status::ok();
    });
    // The step thread is held by another request's sink while ours waits.
    gate.close();
    const auto holder = std::make_shared<RecordingSink>();
    holder->when_scheduled = [&] { gate.pass(); };
    GenerationRequest one_token = greedy_request(1);
    one_token.max_tokens = 1;
    ASSERT_TRUE(scripted.engine->submit(one_token, holder).is_ok());
    ASSERT_TRUE(gate.wait_arrived(1));
    GenerationRequest request = greedy_request(100);
    request.arrival = clock.now() - milliseconds(500);
    const auto sink = std::make_shared<RecordingSink>();
    ASSERT_TRUE(scripted.engine->submit(request, sink).is_ok());
    clock.advance(milliseconds(1900));  // and 100 ms for the holder's step
    gate.open();
    ASSERT_TRUE(sink->wait_finished());

    const auto sum = [&](const char* name) {
        return value(scripted, std::string("vllm:") + name + "_sum");
    };
    constexpr double kHolder = 2.0;  // 1.9 s at the gate, 0.1 s for its step; never queued
    EXPECT_NEAR(sum("request_queue_time_seconds"), 2.0, 1e-9);
    EXPECT_NEAR(sum("request_prefill_time_seconds"), kHolder + 6.0, 1e-9);
    EXPECT_NEAR(sum("time_to_first_token_seconds"), kHolder + 0.5 + 2.0 + 6.0, 1e-9);
    EXPECT_NEAR(sum("request_decode_time_seconds"), 0.2, 1e-9);
    EXPECT_NEAR(sum("request_inference_time_seconds"), kHolder + 6.2, 1e-9);
    EXPECT_NEAR(sum("e2e_request_latency_seconds"), kHolder + 0.5 + 2.0 + 6.2, 1e-9);
    EXPECT_NEAR(sum("inter_token_latency_seconds"), 0.2, 1e-9);
    EXPECT_NEAR(sum("time_per_output_token_seconds"), 0.2, 1e-9);
    EXPECT_EQ(value(scripted, "vllm:inter_token_latency_seconds_count"), 2);
    EXPECT_EQ(value(scripted, "vllm:request_params_max_tokens_sum"), 51);
}

TEST(EngineMetrics, tell_steps_apart_by_kind_and_carry_the_model_name) {
    ScriptedEngine scripted;
    scripted.model.script_any({11}, kStopId);
    const auto sink = std::make_shared<RecordingSink>();
    ASSERT_TRUE(scripted.engine->submit(greedy_request(100), sink).is_ok());
    ASSERT_TRUE(sink->wait_finished());
    const auto steps = [&](const char* kind) {
        return value(scripted, "k3pod_engine_step_seconds_count",
                     {"model_name=\"scripted\"", "engine=\"0\"", kind});
    };
    EXPECT_EQ(steps("kind=\"prefill\""), 2);
    EXPECT_EQ(steps("kind=\"decode\""), 1);
    EXPECT_EQ(steps("kind=\"mixed\""), 0);
    EXPECT_EQ(value(scripted, "vllm:iteration_tokens_total_sum"), 101);
    EXPECT_EQ(value(scripted, "vllm:iteration_tokens_total_count"), 3);
}

}  // namespace
}  // namespace k3pod::testing

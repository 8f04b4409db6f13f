#pragma once
// The promises of GenerationService as tests. Each implementation instantiates the suite in one
// file of its own program:
//
//   INSTANTIATE_TEST_SUITE_P(Engine, GenerationServiceContract, ::testing::Values(my_case),
//   case_name);

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "k3pod/engine/generation_service.h"
#include "tests/support/recording_sink.h"

namespace k3pod::testing {

// A service that accepts requests, with one slot, one place in the queue, a context of 1,000 tokens
// and ids in [0, 64).
class GenerationServiceWorld {
  public:
    virtual ~GenerationServiceWorld() = default;
    virtual GenerationService& service() = 0;
    // Greedy decoding says `continuation` after every prompt, then `end_id` for ever.
    virtual void script(std::vector<int32_t> continuation, int32_t end_id) = 0;
    // Between hold() and release() no request gets a token.
    virtual void hold() = 0;
    virtual void release() = 0;
    virtual void close(const std::string& reason) = 0;
};

struct GenerationServiceCase {
    std::string name;
    std::function<std::unique_ptr<GenerationServiceWorld>()> make_world;
};

inline std::string case_name(const ::testing::TestParamInfo<GenerationServiceCase>& info) {
    return info.param.name;
}

class GenerationServiceContract : public ::testing::TestWithParam<GenerationServiceCase> {
  protected:
    static constexpr int32_t kEndId = 9;

    void SetUp() override {
        world_ = GetParam().make_world();
        world_->script({11, 12, 13}, kEndId);
    }
    void TearDown() override { world_->release(); }

    static GenerationRequest request(int32_t max_tokens = 10) {
        GenerationRequest request;
        request.prompt = {1, 2, 3};
        request.sampling.temperature = 0;
        request.max_tokens = max_tokens;
        request.stop_ids = {kEndId};
        return request;
    }
    GenerationService& service() { return world_->service(); }
    RequestHandle submit(const std::shared_ptr<RecordingSink>& sink, int32_t max_tokens = 10) {
        const auto handle = service().submit(request(max_tokens), sink);
        EXPECT_TRUE(handle.is_ok()) << handle.status().to_string();
        return handle.is_ok() ? *handle : 0;
    }
    void expect_refusal(const GenerationRequest& refused, Code code) {
        const auto sink = std::make_shared<RecordingSink>();
        const auto handle = service().submit(refused, sink);
        EXPECT_EQ(handle.status().code(), code);
        EXPECT_FALSE(handle.status().message().empty());
        EXPECT_EQ(sink->num_finished(), 0);
        EXPECT_EQ(sink.use_count(), 1) << "a refused request keeps nothing";
    }

    std::unique_ptr<GenerationServiceWorld> world_;
};

TEST_P(GenerationServiceContract, delivers_tokens_in_order_with_the_stop_id_last) {
    const auto sink = std::make_shared<RecordingSink>();
    submit(sink);
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_THAT(sink->ids(), ::testing::ElementsAre(11, 12, 13, kEndId));
    EXPECT_EQ(sink->reason(), FinishReason::kStop);
    EXPECT_TRUE(sink->status().is_ok());
    EXPECT_EQ(sink->num_scheduled(), 1);
}

TEST_P(GenerationServiceContract, stops_at_max_tokens) {
    const auto sink = std::make_shared<RecordingSink>();
    submit(sink, 2);
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_THAT(sink->ids(), ::testing::ElementsAre(11, 12));
    EXPECT_EQ(sink->reason(), FinishReason::kLength);
}

TEST_P(GenerationServiceContract, sends_no_token_after_the_sink_had_enough) {
    const auto sink = std::make_shared<RecordingSink>();
    sink->when_token = [](const SampledToken&) { return false; };
    submit(sink);
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_THAT(sink->ids(), ::testing::ElementsAre(11));
    EXPECT_EQ(sink->reason(), FinishReason::kStop);
}

TEST_P(GenerationServiceContract, cancels_what_runs_and_what_waits) {
    world_->hold();
    const auto running = std::make_shared<RecordingSink>(),
               waiting = std::make_shared<RecordingSink>();
    const RequestHandle first = submit(running), second = submit(waiting);
    ASSERT_NE(first, second);
    service().cancel(second);
    service().cancel(first);
    world_->release();
    ASSERT_TRUE(running->wait_finished() && waiting->wait_finished());
    EXPECT_EQ(running->reason(), FinishReason::kCancelled);
    EXPECT_EQ(waiting->reason(), FinishReason::kCancelled);
    EXPECT_THAT(waiting->ids(), ::testing::IsEmpty());
    service().cancel(first);
    service().cancel(987654321);
    EXPECT_EQ(running->num_finished(), 1);
    EXPECT_EQ(service().state().num_running + service().state().num_waiting, 0);
}

TEST_P(GenerationServiceContract, refuses_what_can_never_run) {
    GenerationRequest empty = request();
    empty.prompt.clear();
    expect_refusal(empty, Code::kInvalidArgument);
    GenerationRequest foreign = request();
    foreign.prompt = {64};
    expect_refusal(foreign, Code::kInvalidArgument);
    expect_refusal(request(0), Code::kInvalidArgument);
    expect_refusal(request(998), Code::kInvalidArgument);
    const auto largest = std::make_shared<RecordingSink>();
    submit(largest, 997);
    EXPECT_TRUE(largest->wait_finished());
}

TEST_P(GenerationServiceContract, refuses_with_resource_exhausted_when_the_queue_is_full) {
    world_->hold();
    const auto running = std::make_shared<RecordingSink>(),
               waiting = std::make_shared<RecordingSink>();
    submit(running);
    submit(waiting);
    expect_refusal(request(), Code::kResourceExhausted);
    world_->release();
    ASSERT_TRUE(running->wait_finished() && waiting->wait_finished());
    EXPECT_EQ(waiting->reason(), FinishReason::kStop);
}

TEST_P(GenerationServiceContract, refuses_with_unavailable_and_the_reason_when_closed) {
    EXPECT_TRUE(service().state().accepts);
    world_->close("expert server spark-1 is lost");
    expect_refusal(request(), Code::kUnavailable);
    EXPECT_FALSE(service().state().accepts);
    EXPECT_EQ(service().state().reason, "expert server spark-1 is lost");
}

TEST_P(GenerationServiceContract, counts_what_runs_and_waits) {
    world_->hold();
    const auto running = std::make_shared<RecordingSink>(),
               waiting = std::make_shared<RecordingSink>();
    submit(running);
    ASSERT_TRUE(running->wait_scheduled());
    submit(waiting);
    EXPECT_EQ(service().state().num_running, 1);
    EXPECT_EQ(service().state().num_waiting, 1);
    EXPECT_GT(service().state().kv_usage, 0);
    EXPECT_LE(service().state().kv_usage, 1);
    world_->release();
    ASSERT_TRUE(running->wait_finished() && waiting->wait_finished());
    EXPECT_EQ(service().state().num_running + service().state().num_waiting, 0);
    EXPECT_EQ(service().state().kv_usage, 0);
    EXPECT_EQ(service().state().seconds_since_progress, 0);
}

TEST_P(GenerationServiceContract, lets_go_of_the_sink_after_on_finish) {
    const auto sink = std::make_shared<RecordingSink>();
    const std::weak_ptr<RecordingSink> first = [&] {
        const auto short_lived = std::make_shared<RecordingSink>();
        submit(short_lived, 1);
        EXPECT_TRUE(short_lived->wait_finished());
        return short_lived;
    }();
    // One slot: the second request starts when the first one is gone for good.
    submit(sink);
    ASSERT_TRUE(sink->wait_finished());
    EXPECT_TRUE(first.expired());
}

TEST_P(GenerationServiceContract, tells_its_sizes) {
    EXPECT_EQ(service().vocab_size(), 64);
    EXPECT_EQ(service().max_model_len(), 1000);
    EXPECT_EQ(service().max_requests(), 2);
    EXPECT_EQ(service().default_max_tokens(400), 600);
    EXPECT_EQ(service().default_max_tokens(1000), 1);
}

}  // namespace k3pod::testing

// The engine over the real model on models/k3-tiny, experts in this process.

#include <gtest/gtest.h>

#include <random>

#include "tests/support/golden_cases.h"
#include "tests/support/recording_sink.h"
#include "tests/support/tiny_model.h"

namespace k3pod::testing {
namespace {

constexpr int32_t kVocab = 2304;
constexpr int32_t kEos = 2049, kEndOfMessage = 2050;

class TinyEngine {
  public:
    TinyEngine(int32_t max_num_seqs, int32_t num_pages, int32_t max_batch_tokens)
        : tiny_(TinyModel::load({.dir = K3POD_SOURCE_DIR "/models/k3-tiny",
                                 .max_rows = max_batch_tokens,
                                 .num_slots = max_num_seqs,
                                 .num_pages = num_pages})
                    .value()) {
        EngineOptions options;
        options.limits = {.max_num_seqs = max_num_seqs,
                          .num_pages = num_pages,
                          .page_tokens = kPageTokens,
                          .max_batch_tokens = max_batch_tokens,
                          .queue_limit = 100,
                          .max_model_len = 512,
                          .prefill_alignment = kPrefillAlignment};
        engine_ = Engine::create(options, tiny_->model(), tiny_->store(), tiny_->experts(), kVocab,
                                 clock_, metrics_)
                      .value();
        engine_->set_accepting(true, "");
    }

    Engine& engine() { return *engine_; }
    std::shared_ptr<RecordingSink> run(const GenerationRequest& request) {
        auto sink = std::make_shared<RecordingSink>();
        EXPECT_TRUE(engine_->submit(request, sink).is_ok());
        EXPECT_TRUE(sink->wait_finished());
        EXPECT_TRUE(sink->status().is_ok()) << sink->status().to_string();
        return sink;
    }

  private:
    std::unique_ptr<TinyModel> tiny_;
    SteadyClock clock_;
    MetricsRegistry metrics_;
    std::unique_ptr<Engine> engine_;
};

const std::vector<GoldenCase>& golden_cases() {
    static const std::vector<GoldenCase> cases =
        read_golden_cases(K3POD_SOURCE_DIR "/tests/golden/k3-tiny/golden.json").value();
    return cases;
}

GenerationRequest greedy_request(const GoldenCase& golden) {
    GenerationRequest request;
    request.request_id = golden.name;
    request.prompt = golden.prompt_ids;
    request.sampling.temperature = 0;
    request.max_tokens = 120;
    request.stop_ids = {kEos, kEndOfMessage};
    return request;
}

TEST(TinyEngine, says_what_the_reference_says) {
    TinyEngine tiny(1, 8, 128);
    for (const GoldenCase& golden : golden_cases()) {
        if (golden.min_top2_gap < 0.25f) continue;
        const auto sink = tiny.run(greedy_request(golden));
        EXPECT_EQ(sink->ids(), golden.greedy_ids) << golden.name;
        EXPECT_EQ(sink->reason(), FinishReason::kStop) << golden.name;
    }
}

// Greedy, and with a seed at two temperatures: 30 requests.
std::vector<GenerationRequest> varied_requests() {
    std::vector<GenerationRequest> requests;
    for (const float temperature : {0.0f, 1.0f, 1.8f}) {
        for (const GoldenCase& golden : golden_cases()) {
            requests.push_back(greedy_request(golden));
            requests.back().sampling.temperature = temperature;
            requests.back().sampling.top_p = 0.95f;
            requests.back().sampling.seed = requests.size();
            requests.back().max_tokens = 40;
        }
    }
    return requests;
}

TEST(TinyEngine, a_request_says_the_same_alone_and_in_a_crowd_of_16_with_cancels) {
    constexpr uint32_t kSeed = 3;
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
    const std::vector<GenerationRequest> requests = varied_requests();
    std::vector<std::vector<int32_t>> alone;
    {
        TinyEngine tiny(1, 8, 256);
        for (const GenerationRequest& request : requests) alone.push_back(tiny.run(request)->ids());
    }

    TinyEngine tiny(16, 128, 48);
    std::mt19937 random(kSeed);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    std::vector<bool> is_cancelled;
    for (const GenerationRequest& request : requests) {
        sinks.push_back(std::make_shared<RecordingSink>());
        is_cancelled.push_back(random() % 10 < 3);
        const RequestHandle handle = tiny.engine().submit(request, sinks.back()).value();
        if (random() % 2) {
            ASSERT_TRUE(sinks[random() % sinks.size()]->wait_tokens(1));
        }
        if (is_cancelled.back()) tiny.engine().cancel(handle);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(sinks[i]->wait_finished());
        std::vector<int32_t> expected = alone[i];
        if (is_cancelled[i]) expected.resize(std::min(expected.size(), sinks[i]->ids().size()));
        EXPECT_EQ(sinks[i]->ids(), expected) << "request " << i;
    }
}

TEST(TinyEngine, says_the_same_with_the_same_logprobs_after_its_pages_were_used_by_others) {
    TinyEngine tiny(2, 8, 64);  // a pool of 512 tokens
    GenerationRequest probe = greedy_request(golden_cases()[0]);
    probe.sampling.num_logprobs = 5;
    const auto first = tiny.run(probe)->tokens();
    for (int round = 0; round < 3; ++round) {
        std::vector<std::shared_ptr<RecordingSink>> others;
        for (const GoldenCase& golden : golden_cases()) {
            GenerationRequest request = greedy_request(golden);
            request.max_tokens = 30;
            others.push_back(std::make_shared<RecordingSink>());
            ASSERT_TRUE(tiny.engine().submit(request, others.back()).is_ok());
        }
        const auto again = tiny.run(probe)->tokens();
        for (const auto& other : others) ASSERT_TRUE(other->wait_finished());
        ASSERT_EQ(again.size(), first.size());
        for (size_t i = 0; i < first.size(); ++i) {
            EXPECT_EQ(again[i].id, first[i].id) << "token " << i;
            EXPECT_EQ(again[i].logprob.logprob, first[i].logprob.logprob) << "token " << i;
            EXPECT_EQ(again[i].top[4].id, first[i].top[4].id) << "token " << i;
            EXPECT_EQ(again[i].top[4].logprob, first[i].top[4].logprob) << "token " << i;
        }
    }
}

}  // namespace
}  // namespace k3pod::testing

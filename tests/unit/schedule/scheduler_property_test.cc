// Random streams of requests against what must hold in every step.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "k3pod/schedule/scheduler.h"

namespace k3pod {
namespace {

struct Shadow {
    int32_t prompt = 0;
    int32_t max_tokens = 0;
    int32_t done = 0;       // positions in the state
    int32_t generated = 0;  // tokens drawn
    bool is_running = false;
    int32_t pages(int32_t page_tokens) const {
        return (prompt + max_tokens + page_tokens - 1) / page_tokens;
    }
};

class Stream {
  public:
    Stream(const SchedulerLimits& limits, uint32_t seed)
        : limits_(limits), scheduler_(limits), random_(seed) {}

    void step(bool with_arrivals) {
        if (with_arrivals) arrive();
        const StepPlan plan = scheduler_.plan();
        check_admitted(plan);
        check_chunks(plan);
        scheduler_.complete(plan);
        if (with_arrivals && !sequences_.empty() && chance(10)) cancel_one();
        finish_done();
        check_pages();
    }
    bool is_empty() const { return sequences_.empty(); }

  private:
    bool chance(uint32_t one_in) { return random_() % one_in == 0; }
    int32_t up_to(int32_t most) { return 1 + static_cast<int32_t>(random_() % uint32_t(most)); }

    void arrive() {
        while (chance(2)) {
            const Shadow request = {.prompt = up_to(chance(4) ? 900 : 60),
                                    .max_tokens = up_to(100)};
            if (!scheduler_.check(request.prompt, request.max_tokens).is_ok()) continue;
            const bool has_room =
                sequences_.size() < static_cast<size_t>(limits_.max_num_seqs + limits_.queue_limit);
            const Status added = scheduler_.add(next_id_, request.prompt, request.max_tokens);
            ASSERT_EQ(added.is_ok(), has_room);
            if (has_room) sequences_[next_id_++] = request;
        }
    }

    void check_admitted(const StepPlan& plan) {
        for (const SequenceId id : plan.admitted) {
            ASSERT_GT(id, last_admitted_) << "first come, first served";
            last_admitted_ = id;
            sequences_.at(id).is_running = true;
        }
    }

    void check_chunks(const StepPlan& plan) {
        int32_t tokens = 0;
        bool prefill_seen = false;
        check_progress(plan);
        std::set<SequenceId> in_step;
        for (const PlannedChunk& chunk : plan.chunks) {
            Shadow& sequence = sequences_.at(chunk.id);
            ASSERT_TRUE(sequence.is_running);
            ASSERT_TRUE(in_step.insert(chunk.id).second) << "a sequence is in a step once";
            ASSERT_EQ(chunk.begin, sequence.done);
            ASSERT_GT(chunk.end, chunk.begin);
            if (sequence.done < sequence.prompt) {
                prefill_seen = true;
                ASSERT_EQ(chunk.begin % limits_.prefill_alignment, 0);
                ASSERT_LE(chunk.end, sequence.prompt);
                ASSERT_EQ(chunk.samples, chunk.end == sequence.prompt);
                ASSERT_TRUE(chunk.samples || chunk.end % limits_.prefill_alignment == 0);
            } else {
                ASSERT_FALSE(prefill_seen) << "decodes come first";
                ASSERT_TRUE(chunk.samples);
                ASSERT_EQ(chunk.end, sequence.prompt + sequence.generated);
            }
            tokens += chunk.end - chunk.begin;
            sequence.done = chunk.end;
            sequence.generated += chunk.samples;
        }
        ASSERT_LE(tokens, limits_.max_batch_tokens);
    }

    // Every decoding sequence is in the step, and so is the oldest unfinished prompt.
    void check_progress(const StepPlan& plan) {
        std::set<SequenceId> in_step;
        for (const PlannedChunk& chunk : plan.chunks) in_step.insert(chunk.id);
        bool oldest_prompt_seen = false;
        for (const auto& [id, sequence] : sequences_) {
            const bool is_prompt = sequence.done < sequence.prompt;
            if (!sequence.is_running || (is_prompt && oldest_prompt_seen)) continue;
            ASSERT_TRUE(in_step.contains(id)) << id;
            oldest_prompt_seen |= is_prompt;
        }
    }

    void cancel_one() {
        auto victim = sequences_.begin();
        std::advance(victim, random_() % sequences_.size());
        scheduler_.remove(victim->first);
        sequences_.erase(victim);
    }

    void finish_done() {
        std::erase_if(sequences_, [this](const auto& entry) {
            const bool is_done = entry.second.generated == entry.second.max_tokens;
            if (is_done) scheduler_.remove(entry.first);
            return is_done;
        });
    }

    void check_pages() {
        int32_t used = 0, running = 0;
        for (const auto& [id, sequence] : sequences_) {
            if (!sequence.is_running) continue;
            used += sequence.pages(limits_.page_tokens);
            ++running;
        }
        ASSERT_EQ(scheduler_.num_free_pages(), limits_.num_pages - used);
        ASSERT_EQ(scheduler_.num_running(), running);
        ASSERT_LE(running, limits_.max_num_seqs);
        ASSERT_EQ(scheduler_.num_waiting(), static_cast<int32_t>(sequences_.size()) - running);
    }

    const SchedulerLimits limits_;
    Scheduler scheduler_;
    std::mt19937 random_;
    std::map<SequenceId, Shadow> sequences_;  // by id, which is the order of arrival
    SequenceId next_id_ = 1;
    SequenceId last_admitted_ = 0;
};

TEST(SchedulerProperty, every_plan_is_valid_and_every_request_ends) {
    for (uint32_t seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const int32_t max_num_seqs = 1 + static_cast<int32_t>(seed % 7);
        const SchedulerLimits limits = {
            .max_num_seqs = max_num_seqs,
            .num_pages = 12 + static_cast<int32_t>(seed % 20),
            .page_tokens = 64,
            .max_batch_tokens = max_num_seqs + 16 + static_cast<int32_t>(seed * 13 % 90),
            .queue_limit = static_cast<int32_t>(seed % 5),
            .max_model_len = 2048};
        Stream stream(limits, seed);
        for (int step = 0; step < 300; ++step) {
            stream.step(true);
            ASSERT_FALSE(HasFatalFailure());
        }
        // At most 12 requests of 900 + 100 tokens are left, 16 tokens a step in the worst case.
        for (int step = 0; step < 3000 && !stream.is_empty(); ++step) stream.step(false);
        ASSERT_TRUE(stream.is_empty()) << "a request was starved";
    }
}

}  // namespace
}  // namespace k3pod

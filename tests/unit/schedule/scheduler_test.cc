#include "k3pod/schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace k3pod {

// For matchers and failure messages.
bool operator==(const PlannedChunk& a, const PlannedChunk& b) {
    return a.id == b.id && a.begin == b.begin && a.end == b.end && a.samples == b.samples;
}
void PrintTo(const PlannedChunk& chunk, std::ostream* out) {
    *out << "{" << chunk.id << ": [" << chunk.begin << ", " << chunk.end << ")"
         << (chunk.samples ? " samples}" : "}");
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A pool of 4,096 tokens under a context of 16,384: case SK1.
constexpr SchedulerLimits kLimits = {.max_num_seqs = 4,
                                     .num_pages = 64,
                                     .page_tokens = 64,
                                     .max_batch_tokens = 64,
                                     .queue_limit = 2,
                                     .max_model_len = 16384,
                                     .prefill_alignment = 16};

StepPlan run_step(Scheduler& scheduler) {
    StepPlan plan = scheduler.plan();
    scheduler.complete(plan);
    return plan;
}

TEST(Scheduler, plans_nothing_when_there_is_nothing) {
    Scheduler scheduler(kLimits);
    EXPECT_THAT(scheduler.plan().admitted, IsEmpty());
    EXPECT_THAT(scheduler.plan().chunks, IsEmpty());
}

TEST(Scheduler, takes_a_short_prompt_whole_and_then_one_token_a_step) {
    Scheduler scheduler(kLimits);
    ASSERT_TRUE(scheduler.add(7, 10, 5).is_ok());
    const StepPlan first = run_step(scheduler);
    EXPECT_THAT(first.admitted, ElementsAre(7));
    EXPECT_THAT(first.chunks, ElementsAre(PlannedChunk{7, 0, 10, true}));
    const StepPlan second = run_step(scheduler);
    EXPECT_THAT(second.admitted, IsEmpty());
    EXPECT_THAT(second.chunks, ElementsAre(PlannedChunk{7, 10, 11, true}));
    EXPECT_THAT(run_step(scheduler).chunks, ElementsAre(PlannedChunk{7, 11, 12, true}));
}

TEST(Scheduler, cuts_a_long_prompt_at_multiples_of_the_alignment) {
    Scheduler scheduler(kLimits);
    ASSERT_TRUE(scheduler.add(1, 8, 5).is_ok());
    run_step(scheduler);
    ASSERT_TRUE(scheduler.add(2, 100, 5).is_ok());
    // One token decodes; 63 are left, of which 48 are whole chunks.
    EXPECT_THAT(run_step(scheduler).chunks,
                ElementsAre(PlannedChunk{1, 8, 9, true}, PlannedChunk{2, 0, 48, false}));
    EXPECT_THAT(run_step(scheduler).chunks,
                ElementsAre(PlannedChunk{1, 9, 10, true}, PlannedChunk{2, 48, 100, true}));
}

TEST(Scheduler, gives_what_one_prompt_leaves_to_the_next_in_order_of_admission) {
    Scheduler scheduler(kLimits);
    ASSERT_TRUE(scheduler.add(1, 30, 5).is_ok());
    ASSERT_TRUE(scheduler.add(2, 40, 5).is_ok());
    ASSERT_TRUE(scheduler.add(3, 20, 5).is_ok());
    EXPECT_THAT(run_step(scheduler).chunks,
                ElementsAre(PlannedChunk{1, 0, 30, true}, PlannedChunk{2, 0, 32, false}));
    EXPECT_THAT(run_step(scheduler).chunks,
                ElementsAre(PlannedChunk{1, 30, 31, true}, PlannedChunk{2, 32, 40, true},
                            PlannedChunk{3, 0, 20, true}));
}

TEST(Scheduler, moves_the_oldest_prompt_beside_a_full_house_of_decodes) {
    SchedulerLimits limits = kLimits;
    limits.max_batch_tokens = 20;
    Scheduler scheduler(limits);
    for (SequenceId id = 1; id <= 3; ++id) {
        ASSERT_TRUE(scheduler.add(id, 1, 50).is_ok());
        run_step(scheduler);
    }
    ASSERT_TRUE(scheduler.add(4, 33, 5).is_ok());
    EXPECT_EQ(run_step(scheduler).chunks.back(), (PlannedChunk{4, 0, 16, false}));
    EXPECT_EQ(run_step(scheduler).chunks.back(), (PlannedChunk{4, 16, 33, true}));
}

TEST(Scheduler, refuses_what_can_never_run_with_the_figures) {
    const Scheduler scheduler(kLimits);
    const Status pool = scheduler.check(8000, 10);
    EXPECT_EQ(pool.code(), Code::kInvalidArgument);
    EXPECT_THAT(pool.message(),
                HasSubstr("prompt of 8000 tokens + max_tokens 10 = 8010 is over the "
                          "4096 tokens that the whole cache holds (64 pages of 64)"));
    const Status context = scheduler.check(16000, 385);
    EXPECT_EQ(context.code(), Code::kInvalidArgument);
    EXPECT_THAT(context.message(),
                HasSubstr("prompt of 16000 tokens + max_tokens 385 = 16385 is over "
                          "this model's context of 16384 tokens"));
    EXPECT_EQ(scheduler.check(2'000'000'000, 2'000'000'000).code(), Code::kInvalidArgument);
    EXPECT_TRUE(scheduler.check(4095, 1).is_ok());
    EXPECT_FALSE(scheduler.check(4096, 1).is_ok());
}

TEST(Scheduler, runs_two_requests_of_60_percent_of_the_pool_one_after_the_other) {
    Scheduler scheduler(kLimits);
    ASSERT_TRUE(scheduler.add(1, 2400, 58).is_ok());
    ASSERT_TRUE(scheduler.add(2, 2400, 58).is_ok());
    EXPECT_THAT(run_step(scheduler).admitted, ElementsAre(1));
    EXPECT_EQ(scheduler.num_free_pages(), 25);  // 64 - ceil(2458 / 64)
    EXPECT_THAT(run_step(scheduler).admitted, IsEmpty());
    EXPECT_EQ(scheduler.num_waiting(), 1);
    scheduler.remove(1);
    EXPECT_THAT(run_step(scheduler).admitted, ElementsAre(2));
    scheduler.remove(2);
    EXPECT_EQ(scheduler.num_free_pages(), 64);
    EXPECT_EQ(scheduler.num_waiting() + scheduler.num_running(), 0);
}

TEST(Scheduler, does_not_let_small_requests_overtake_a_large_one) {
    Scheduler scheduler(kLimits);
    ASSERT_TRUE(scheduler.add(1, 2400, 58).is_ok());
    run_step(scheduler);
    ASSERT_TRUE(scheduler.add(2, 2400, 58).is_ok());
    ASSERT_TRUE(scheduler.add(3, 1, 1).is_ok());
    EXPECT_THAT(run_step(scheduler).admitted, IsEmpty());
    scheduler.remove(1);
    EXPECT_THAT(run_step(scheduler).admitted, ElementsAre(2, 3));
}

TEST(Scheduler, refuses_more_than_slots_and_queue_together) {
    Scheduler scheduler(kLimits);
    for (SequenceId id = 1; id <= 6; ++id) ASSERT_TRUE(scheduler.add(id, 1, 1).is_ok()) << id;
    EXPECT_EQ(scheduler.add(7, 1, 1).code(), Code::kResourceExhausted);
    run_step(scheduler);
    const Status full = scheduler.add(7, 1, 1);
    EXPECT_EQ(full.code(), Code::kResourceExhausted);
    EXPECT_THAT(full.message(),
                HasSubstr("4 requests run and 2 wait; the limit is 4 running and 2"));
    scheduler.remove(6);
    EXPECT_TRUE(scheduler.add(7, 1, 1).is_ok());
}

TEST(Scheduler, forgets_removed_sequences_wherever_they_are) {
    Scheduler scheduler(kLimits);
    ASSERT_TRUE(scheduler.add(1, 200, 5).is_ok());
    const StepPlan plan = scheduler.plan();
    scheduler.remove(1);
    scheduler.complete(plan);
    scheduler.remove(99);
    EXPECT_THAT(scheduler.plan().chunks, IsEmpty());
    ASSERT_TRUE(scheduler.add(2, 1, 1).is_ok());
    scheduler.remove(2);
    EXPECT_THAT(scheduler.plan().admitted, IsEmpty());
    EXPECT_EQ(scheduler.num_free_pages(), 64);
}

}  // namespace
}  // namespace k3pod

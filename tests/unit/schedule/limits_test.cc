#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "k3pod/schedule/scheduler.h"

namespace k3pod {
namespace {

using ::testing::HasSubstr;

constexpr SchedulerLimits kGood = {.max_num_seqs = 4,
                                   .num_pages = 64,
                                   .page_tokens = 64,
                                   .max_batch_tokens = 20,
                                   .queue_limit = 0,
                                   .max_model_len = 16384,
                                   .prefill_alignment = 16};

TEST(SchedulerLimits, accepts_the_smallest_batch_that_guarantees_progress) {
    EXPECT_EQ(check_limits(kGood).to_string(), "ok");
}

TEST(SchedulerLimits, refuses_a_batch_that_decoding_sequences_could_fill) {
    SchedulerLimits limits = kGood;
    limits.max_batch_tokens = 19;
    EXPECT_EQ(check_limits(limits).code(), Code::kInvalidArgument);
    EXPECT_THAT(check_limits(limits).message(),
                HasSubstr("max_batch_tokens is 19; it must be at least 20 = max_num_seqs 4 + 16"));
}

TEST(SchedulerLimits, refuses_each_limit_that_is_too_small) {
    const auto message_with = [](int32_t SchedulerLimits::*field, int32_t value) {
        SchedulerLimits limits = kGood;
        limits.*field = value;
        return check_limits(limits).message();
    };
    EXPECT_EQ(message_with(&SchedulerLimits::max_num_seqs, 0),
              "max_num_seqs is 0; it must be at least 1");
    EXPECT_EQ(message_with(&SchedulerLimits::num_pages, -5),
              "num_pages is -5; it must be at least 1");
    EXPECT_EQ(message_with(&SchedulerLimits::page_tokens, 0),
              "page_tokens is 0; it must be at least 1");
    EXPECT_EQ(message_with(&SchedulerLimits::queue_limit, -1),
              "queue_limit is -1; it must be at least 0");
    EXPECT_EQ(message_with(&SchedulerLimits::max_model_len, 1),
              "max_model_len is 1; it must be at least 2");
    EXPECT_EQ(message_with(&SchedulerLimits::prefill_alignment, 0),
              "prefill_alignment is 0; it must be at least 1");
}

}  // namespace
}  // namespace k3pod

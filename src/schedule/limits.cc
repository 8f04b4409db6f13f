#include <fmt/format.h>

#include "k3pod/schedule/scheduler.h"

namespace k3pod {
namespace {

Status check_at_least(const char* field, int32_t value, int32_t least) {
    if (value >= least) return Status::ok();
    return invalid_argument(fmt::format("{} is {}; it must be at least {}", field, value, least));
}

}  // namespace

Status check_limits(const SchedulerLimits& limits) {
    K3POD_TRY(check_at_least("max_num_seqs", limits.max_num_seqs, 1));
    K3POD_TRY(check_at_least("num_pages", limits.num_pages, 1));
    K3POD_TRY(check_at_least("page_tokens", limits.page_tokens, 1));
    K3POD_TRY(check_at_least("queue_limit", limits.queue_limit, 0));
    K3POD_TRY(check_at_least("max_model_len", limits.max_model_len, 2));
    K3POD_TRY(check_at_least("prefill_alignment", limits.prefill_alignment, 1));
    const int64_t least_batch = int64_t{limits.max_num_seqs} + limits.prefill_alignment;
    if (limits.max_batch_tokens < least_batch) {
        return invalid_argument(fmt::format(
            "max_batch_tokens is {}; it must be at least {} = max_num_seqs {} + {}, so that "
            "a prompt moves on while every other sequence decodes",
            limits.max_batch_tokens, least_batch, limits.max_num_seqs, limits.prefill_alignment));
    }
    return Status::ok();
}

Status check_room(const SchedulerLimits& limits, int32_t num_running, int32_t num_waiting) {
    const int64_t capacity = int64_t{limits.max_num_seqs} + limits.queue_limit;
    if (int64_t{num_running} + num_waiting < capacity) return Status::ok();
    return resource_exhausted(fmt::format(
        "{} requests run and {} wait; the limit is {} running and {} waiting. Try again "
        "later",
        num_running, num_waiting, limits.max_num_seqs, limits.queue_limit));
}

}  // namespace k3pod

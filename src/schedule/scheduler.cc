#include "k3pod/schedule/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "k3pod/base/check.h"

namespace k3pod {

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), free_pages_(limits.num_pages) {
    K3POD_CHECK(check_limits(limits).is_ok(), "scheduler limits were checked");
    running_.reserve(static_cast<size_t>(limits.max_num_seqs));
}

Status Scheduler::check(int32_t prompt_tokens, int32_t max_tokens) const {
    const int64_t tokens = int64_t{prompt_tokens} + max_tokens;
    if (tokens > limits_.max_model_len) {
        return invalid_argument(fmt::format(
            "prompt of {} tokens + max_tokens {} = {} is over this model's context of {} "
            "tokens; shorten the prompt or lower max_tokens",
            prompt_tokens, max_tokens, tokens, limits_.max_model_len));
    }
    const int64_t pool_tokens = int64_t{limits_.num_pages} * limits_.page_tokens;
    if (tokens > pool_tokens) {
        return invalid_argument(fmt::format(
            "prompt of {} tokens + max_tokens {} = {} is over the {} tokens that the whole "
            "cache holds ({} pages of {}); shorten the prompt or lower max_tokens",
            prompt_tokens, max_tokens, tokens, pool_tokens, limits_.num_pages,
            limits_.page_tokens));
    }
    return Status::ok();
}

Status Scheduler::add(SequenceId id, int32_t prompt_tokens, int32_t max_tokens) {
    K3POD_CHECK(prompt_tokens > 0 && max_tokens > 0 && check(prompt_tokens, max_tokens).is_ok(),
                "a queued request can run");
    K3POD_TRY(check_room(limits_, num_running(), num_waiting()));
    const int32_t tokens = prompt_tokens + max_tokens;
    waiting_.push_back({.id = id,
                        .prompt_tokens = prompt_tokens,
                        .pages = (tokens + limits_.page_tokens - 1) / limits_.page_tokens,
                        .done_tokens = 0,
                        .known_tokens = prompt_tokens});
    return Status::ok();
}

const StepPlan& Scheduler::plan() {
    plan_.admitted.clear();
    plan_.chunks.clear();
    admit();
    const int32_t decode_tokens = plan_decodes();
    plan_prefills(limits_.max_batch_tokens - decode_tokens);
    return plan_;
}

// Strictly in order: a large request at the front is not overtaken for ever by small ones behind
// it.
void Scheduler::admit() {
    while (!waiting_.empty() && num_running() < limits_.max_num_seqs &&
           waiting_.front().pages <= free_pages_) {
        free_pages_ -= waiting_.front().pages;
        plan_.admitted.push_back(waiting_.front().id);
        running_.push_back(waiting_.front());
        waiting_.pop_front();
    }
}

int32_t Scheduler::plan_decodes() {
    int32_t tokens = 0;
    for (const Sequence& sequence : running_) {
        if (!sequence.is_decoding()) continue;
        plan_.chunks.push_back({sequence.id, sequence.done_tokens, sequence.known_tokens, true});
        ++tokens;
    }
    return tokens;
}

void Scheduler::plan_prefills(int32_t budget) {
    for (const Sequence& sequence : running_) {
        if (sequence.is_decoding()) continue;
        const int32_t begin = sequence.done_tokens;
        const bool ends_prompt = sequence.prompt_tokens - begin <= budget;
        const int32_t end =
            ends_prompt ? sequence.prompt_tokens
                        : begin + budget / limits_.prefill_alignment * limits_.prefill_alignment;
        if (end == begin) return;
        plan_.chunks.push_back({sequence.id, begin, end, ends_prompt});
        budget -= end - begin;
    }
}

void Scheduler::complete(const StepPlan& plan) {
    for (const PlannedChunk& chunk : plan.chunks) {
        const auto sequence = std::find_if(running_.begin(), running_.end(),
                                           [&](const Sequence& s) { return s.id == chunk.id; });
        if (sequence == running_.end()) continue;
        sequence->done_tokens = chunk.end;
        if (chunk.samples) ++sequence->known_tokens;
    }
}

void Scheduler::remove(SequenceId id) {
    const auto has_id = [id](const Sequence& sequence) { return sequence.id == id; };
    const auto running = std::find_if(running_.begin(), running_.end(), has_id);
    if (running != running_.end()) {
        free_pages_ += running->pages;
        running_.erase(running);
        return;
    }
    const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), has_id);
    if (waiting != waiting_.end()) waiting_.erase(waiting);
}

}  // namespace k3pod

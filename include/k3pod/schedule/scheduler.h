#pragma once
// Continuous batching with chunked prefill. Pure bookkeeping: no clock, no threads, no model;
// tested by feeding requests and reading plans.
//
// Admission is first come, first served and reserves a slot and the pages for prompt + max_tokens,
// so a running sequence never has to be thrown out (docs/decisions). A step holds one token of
// every decoding sequence first, then prefill chunks in order of admission up to the token budget.
// Chunks end at multiples of prefill_alignment except at the end of a prompt, so results do not
// depend on what else runs. check_limits() guarantees room for one aligned chunk beside every
// decoding sequence: the oldest prefill moves in each step, and nothing starves.

#include <cstdint>
#include <deque>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

using SequenceId = uint64_t;

struct SchedulerLimits {
    int32_t max_num_seqs = 0;  // slots
    int32_t num_pages = 0;
    int32_t page_tokens = 0;
    int32_t max_batch_tokens = 0;  // >= max_num_seqs + prefill_alignment
    int32_t queue_limit = 0;       // requests beyond max_num_seqs; 0: none waits
    int32_t max_model_len = 0;
    int32_t prefill_alignment = 16;
};

// kInvalidArgument names the field, its value and what it must be.
Status check_limits(const SchedulerLimits& limits);
// Whether one more request may queue: kResourceExhausted when max_num_seqs + queue_limit are there.
Status check_room(const SchedulerLimits& limits, int32_t num_running, int32_t num_waiting);

struct PlannedChunk {
    SequenceId id = 0;
    int32_t begin = 0;  // token positions [begin, end) of prompt + generated
    int32_t end = 0;
    bool samples = false;  // the last token's logits are needed
};

struct StepPlan {
    std::vector<SequenceId> admitted;  // acquire their state before running the chunks
    std::vector<PlannedChunk> chunks;  // empty: nothing to do
};

// One thread.
class Scheduler {
  public:
    // `limits` have passed check_limits.
    explicit Scheduler(const SchedulerLimits& limits);

    // Whether a request can ever run: kInvalidArgument with the figures when prompt + max_tokens is
    // over max_model_len or over the whole page pool. Touches only the limits: any thread.
    Status check(int32_t prompt_tokens, int32_t max_tokens) const;
    // Queues a request that passed check(), unless check_room() refuses it. `id` is new.
    Status add(SequenceId id, int32_t prompt_tokens, int32_t max_tokens);
    // The next step. Valid until the next call; allocates nothing once the largest plan was seen.
    const StepPlan& plan();
    // After the step ran: chunks are done; sequences that sampled grew by one token. Sequences
    // removed since plan() are skipped.
    void complete(const StepPlan& plan);
    // Finished, cancelled or failed; queued or running. Unknown ids are ignored.
    void remove(SequenceId id);

    int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
    int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
    int32_t num_free_pages() const { return free_pages_; }

  private:
    struct Sequence {
        SequenceId id;
        int32_t prompt_tokens;
        int32_t pages;
        int32_t done_tokens;   // positions in the state
        int32_t known_tokens;  // prompt + generated
        bool is_decoding() const { return done_tokens >= prompt_tokens; }
    };

    void admit();
    int32_t plan_decodes();
    void plan_prefills(int32_t budget);

    const SchedulerLimits limits_;
    std::deque<Sequence> waiting_;
    std::vector<Sequence> running_;  // in order of admission
    int32_t free_pages_;
    StepPlan plan_;
};

}  // namespace k3pod

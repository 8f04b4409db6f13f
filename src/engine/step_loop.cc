#include "engine/step_loop.h"

#include <fmt/format.h>

#include <algorithm>

#include "k3pod/base/log.h"

namespace k3pod {
namespace {

// What a request is told about a step that failed. Only a peer that is gone or late is worth trying
// again; anything else is a fault of ours, whatever its code says about our own call.
Status as_request_error(const Status& why) {
    if (why.code() == Code::kUnavailable || why.code() == Code::kDeadlineExceeded) return why;
    return internal_error(why.message());
}

}  // namespace

StepLoop::StepLoop(const SchedulerLimits& limits, int32_t vocab, const Parts& parts)
    : vocab_(vocab),
      parts_(parts),
      scheduler_(limits),
      sampler_workspace_(vocab),
      logits_pool_(static_cast<size_t>(limits.max_num_seqs) * static_cast<size_t>(vocab)) {
    chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
    batch_.reserve(static_cast<size_t>(limits.max_num_seqs));
}

void StepLoop::run() {
    std::vector<Command> commands;
    bool goes_on = true;
    while (goes_on) {
        goes_on = parts_.desk.take(commands, active_.empty());
        for (Command& command : commands) {
            std::visit([this](auto&& c) { carry_out(std::move(c)); }, command);
        }
        if (!goes_on) break;
        const StepPlan& plan = scheduler_.plan();
        start(plan.admitted);
        run_step(plan);
    }
    fail_if([](const ActiveRequest&) { return true; },
            unavailable("the station is shutting down; send the request again later"));
}

void StepLoop::carry_out(SubmitCommand&& command) {
    ActiveRequest& active = active_[command.handle];
    active.handle = command.handle;
    active.ids = std::move(command.request.prompt);
    active.prompt_tokens = static_cast<int32_t>(active.ids.size());
    active.request = std::move(command.request);
    active.sink = std::move(command.sink);
    active.queued = command.queued;
    const Status added =
        scheduler_.add(active.handle, active.prompt_tokens, active.request.max_tokens);
    if (!added) finish(active.handle, FinishReason::kError, added);
}

void StepLoop::carry_out(const CancelCommand& command) {
    if (active_.contains(command.handle)) finish(command.handle, FinishReason::kCancelled);
}

void StepLoop::carry_out(const FailWaitingCommand& command) {
    fail_if([](const ActiveRequest& request) { return !request.is_running; }, command.why);
}

void StepLoop::carry_out(const FailAllCommand& command) {
    // Counted first: who waits for an empty house reads the count as soon as the last one is out.
    parts_.desk.note_failed(static_cast<int32_t>(active_.size()));
    fail_if([](const ActiveRequest&) { return true; }, command.why);
}

// The scheduler and the state count pages alike, so a failing acquire is a fault of ours; it costs
// the request, not the process.
void StepLoop::start(std::span<const SequenceId> admitted) {
    for (const SequenceId id : admitted) {
        ActiveRequest& active = active_.at(id);
        Result<SequenceState> state =
            parts_.state.acquire(active.prompt_tokens + active.request.max_tokens);
        if (!state) {
            finish(id, FinishReason::kError, state.status());
            continue;
        }
        active.state = std::move(*state);
        active.is_running = true;
        active.ids.reserve(active.ids.size() + static_cast<size_t>(active.request.max_tokens));
        active.sampler.emplace(active.request.sampling, active.ids, sampler_workspace_);
        active.scheduled = parts_.clock.now();
        parts_.metrics.on_scheduled(active);
        parts_.desk.note_admitted();
        active.sink->on_scheduled();
    }
    if (!admitted.empty()) publish_kv_usage();
}

void StepLoop::run_step(const StepPlan& plan) {
    gather(plan);
    if (chunks_.empty()) return;
    const TimePoint begin = parts_.clock.now();
    const Status done =
        parts_.model.forward({.step = ++step_, .chunks = chunks_}, parts_.experts, logits_);
    if (!done) {
        fail_step(done);
        return;
    }
    scheduler_.complete(plan);
    record_step(parts_.clock.now() - begin);
    parts_.desk.note_progress(deliver());
}

void StepLoop::gather(const StepPlan& plan) {
    chunks_.clear();
    batch_.clear();
    size_t num_rows = 0;
    for (const PlannedChunk& chunk : plan.chunks) {
        const auto found = active_.find(chunk.id);
        if (found == active_.end()) continue;
        ActiveRequest& active = found->second;
        const int32_t num_tokens = chunk.end - chunk.begin;
        chunks_.push_back(
            {.state = &active.state,
             .position = chunk.begin,
             .ids = std::span(active.ids).subspan(size_t(chunk.begin), size_t(num_tokens)),
             .logits =
                 chunk.samples ? SequenceChunk::Logits::kLast : SequenceChunk::Logits::kNone});
        batch_.push_back({&active, num_tokens, chunk.begin < active.prompt_tokens, chunk.samples});
        num_rows += chunk.samples;
    }
    logits_ = std::span(logits_pool_).first(num_rows * static_cast<size_t>(vocab_));
}

void StepLoop::record_step(Nanoseconds duration) {
    int32_t prompt_tokens = 0, decode_tokens = 0;
    for (const BatchEntry& entry : batch_) {
        (entry.is_prompt ? prompt_tokens : decode_tokens) += entry.num_tokens;
        if (entry.is_prompt) entry.request->prefilled_tokens += entry.num_tokens;
    }
    const StepKind kind = prompt_tokens == 0   ? StepKind::kDecode
                          : decode_tokens == 0 ? StepKind::kPrefill
                                               : StepKind::kMixed;
    parts_.metrics.on_step(kind, to_seconds(duration), prompt_tokens, decode_tokens);
}

// The states of the step's sequences are unusable. The others did not move and go on.
void StepLoop::fail_step(const Status& why) {
    parts_.metrics.on_step_failed();
    std::string request_ids;
    for (const BatchEntry& entry : batch_) request_ids += " " + entry.request->request.request_id;
    log::error(fmt::format("step {} failed, {} requests end with it: {};{}", step_, batch_.size(),
                           why.to_string(), request_ids));
    for (const BatchEntry& entry : batch_) {
        finish(entry.request->handle, FinishReason::kError, as_request_error(why));
    }
}

int32_t StepLoop::deliver() {
    const auto vocab = static_cast<size_t>(vocab_);
    size_t row = 0;
    int32_t num_tokens = 0;
    for (const BatchEntry& entry : batch_) {
        if (!entry.samples) continue;
        num_tokens += deliver_token(*entry.request, logits_.subspan(row++ * vocab, vocab)) ? 1 : 0;
    }
    return num_tokens;
}

bool StepLoop::deliver_token(ActiveRequest& active, std::span<const float> logits) {
    const int32_t position = active.generated_tokens();
    const bool bans_stops = position < active.request.min_tokens && !active.request.ignore_eos;
    const Result<SampledToken> token =
        active.sampler->draw(logits, position,
                             bans_stops ? std::span<const int32_t>(active.request.stop_ids)
                                        : std::span<const int32_t>());
    if (!token) {
        parts_.metrics.on_logits_refused();
        log::error(fmt::format("request {} ends: {}", active.request.request_id,
                               token.status().to_string()));
        finish(active.handle, FinishReason::kError, token.status());
        return false;
    }
    const TimePoint now = parts_.clock.now();
    parts_.metrics.on_token(active, now);
    if (position == 0) active.first_token = now;
    active.last_token = now;
    active.ids.push_back(token->id);
    hand_out(active, *token);
    return true;
}

void StepLoop::hand_out(ActiveRequest& active, const SampledToken& token) {
    const GenerationRequest& request = active.request;
    const bool is_stop_id = !request.ignore_eos &&
                            std::find(request.stop_ids.begin(), request.stop_ids.end(), token.id) !=
                                request.stop_ids.end();
    const bool goes_on = active.sink->on_token(token);
    if (is_stop_id || !goes_on) {
        finish(active.handle, FinishReason::kStop);
    } else if (active.generated_tokens() == request.max_tokens) {
        finish(active.handle, FinishReason::kLength);
    }
}

void StepLoop::finish(RequestHandle handle, FinishReason reason, const Status& status) {
    auto node = active_.extract(handle);
    ActiveRequest& active = node.mapped();
    scheduler_.remove(handle);
    if (active.is_running) parts_.state.release(std::move(active.state));
    publish_kv_usage();
    parts_.metrics.on_finished(active, reason, parts_.clock.now());
    parts_.desk.note_left(active.is_running);
    active.sink->on_finish(reason, status);
    active.sink.reset();
    parts_.desk.note_closed();
}

template <class Predicate>
void StepLoop::fail_if(Predicate predicate, const Status& why) {
    std::vector<RequestHandle> handles;
    for (const auto& [handle, active] : active_) {
        if (predicate(active)) handles.push_back(handle);
    }
    std::sort(handles.begin(), handles.end());
    for (const RequestHandle handle : handles) finish(handle, FinishReason::kError, why);
}

void StepLoop::publish_kv_usage() {
    const double num_pages = parts_.state.shape().num_pages;
    parts_.metrics.set_kv_usage(1.0 - parts_.state.num_free_pages() / num_pages);
}

}  // namespace k3pod

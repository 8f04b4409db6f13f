#include "tests/support/scripted_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace k3pod::testing {
namespace {

constexpr std::chrono::seconds kPatience{10};

}  // namespace

SampledToken sampled(int32_t id, int32_t num_logprobs) {
    SampledToken token;
    token.id = id;
    if (num_logprobs < 0) return token;
    token.logprob = {.id = id, .logprob = -0.5f};
    for (int32_t i = 0; i < num_logprobs; ++i) {
        token.top.push_back({.id = id + i, .logprob = -0.5f - static_cast<float>(i)});
    }
    return token;
}

void ScriptedService::play(const Submitted& submitted, const std::vector<int32_t>& ids) {
    const GenerationRequest& request = submitted.request;
    int32_t num_tokens = 0;
    FinishReason reason = FinishReason::kStop;
    for (const int32_t id : ids) {
        const bool goes_on = submitted.sink->on_token(sampled(id, request.sampling.num_logprobs));
        ++num_tokens;
        const auto& stops = request.stop_ids;
        if (!goes_on || std::find(stops.begin(), stops.end(), id) != stops.end()) break;
        if (num_tokens < request.max_tokens) continue;
        reason = FinishReason::kLength;
        break;
    }
    submitted.sink->on_finish(reason, Status::ok());
}

ScriptedService::Submitted ScriptedService::submitted(size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return submitted_.size() > index; });
    return submitted_.size() > index ? submitted_[index] : Submitted{};
}

size_t ScriptedService::num_submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_.size();
}

bool ScriptedService::wait_cancelled(RequestHandle handle) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return cancelled_.count(handle) != 0; });
}

bool ScriptedService::is_cancelled(RequestHandle handle) const {
    const std::lock_guard lock(mutex_);
    return cancelled_.count(handle) != 0;
}

Result<RequestHandle> ScriptedService::submit(GenerationRequest request,
                                              std::shared_ptr<GenerationSink> sink) {
    Submitted submitted{.request = std::move(request), .sink = std::move(sink)};
    size_t index = 0;
    {
        const std::lock_guard lock(mutex_);
        index = submitted_.size();
        if (!refusal.is_ok() && index >= refuse_from) return refusal;
        submitted.handle = index + 1;
        submitted_.push_back(submitted);
    }
    changed_.notify_all();
    if (!scripts.empty()) play(submitted, scripts[std::min(index, scripts.size() - 1)]);
    return submitted.handle;
}

void ScriptedService::cancel(RequestHandle handle) {
    {
        const std::lock_guard lock(mutex_);
        cancelled_.insert(handle);
    }
    changed_.notify_all();
}

}  // namespace k3pod::testing

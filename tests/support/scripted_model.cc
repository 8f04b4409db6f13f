#include "tests/support/scripted_model.h"

#include <algorithm>

#include "k3pod/base/check.h"

namespace k3pod::testing {
namespace {

constexpr float kScriptedLogit = 30.0f;

// A value in [-4, 4) from the ids so far and a candidate: unscripted text that depends on nothing
// else.
float hashed_logit(uint64_t history_hash, size_t id) {
    uint64_t x = history_hash + (id + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return static_cast<float>(x & 0xffff) / 8192.0f - 4.0f;
}

uint64_t hash_ids(std::span<const int32_t> ids) {
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const int32_t id : ids) hash = (hash ^ static_cast<uint64_t>(id)) * 1099511628211u;
    return hash;
}

}  // namespace

Status NullExpertPort::combine(std::span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
    return Status::ok();
}

void ScriptedModel::script(std::vector<int32_t> prompt, std::vector<int32_t> continuation,
                           int32_t end_id) {
    const std::lock_guard lock(mutex_);
    scripts_[std::move(prompt)] = {std::move(continuation), end_id};
}

void ScriptedModel::script_any(std::vector<int32_t> continuation, int32_t end_id) {
    const std::lock_guard lock(mutex_);
    default_script_.assign(1, {std::move(continuation), end_id});
}

Status ScriptedModel::forward(const ModelStep& step, ExpertPort&, std::span<float> logits,
                              ForwardProbe*) {
    if (hook_) K3POD_TRY(hook_(step));
    const std::lock_guard lock(mutex_);
    const auto vocab = static_cast<size_t>(vocab_);
    size_t row = 0;
    for (const SequenceChunk& chunk : step.chunks) {
        const History& history = extend_history(chunk);
        if (chunk.logits == SequenceChunk::Logits::kNone) continue;
        K3POD_CHECK(chunk.logits == SequenceChunk::Logits::kLast, "a script has one row a chunk");
        K3POD_CHECK((row + 1) * vocab <= logits.size(), "logits have room for every row");
        write_logits(history, logits.subspan(row++ * vocab, vocab));
    }
    K3POD_CHECK(row * vocab == logits.size(), "logits have no more rows than the step asks for");
    return Status::ok();
}

// The first row of logits that is asked for marks the end of a prompt.
ScriptedModel::History& ScriptedModel::extend_history(const SequenceChunk& chunk) {
    K3POD_CHECK(chunk.state != nullptr, "a chunk has a state");
    History& history = histories_[chunk.state->slot];
    if (chunk.position == 0) history = {};
    K3POD_CHECK(history.ids.size() == static_cast<size_t>(chunk.position),
                "a chunk begins where the sequence's last one ended");
    history.ids.insert(history.ids.end(), chunk.ids.begin(), chunk.ids.end());
    if (history.prompt_tokens == 0 && chunk.logits != SequenceChunk::Logits::kNone) {
        history.prompt_tokens = history.ids.size();
    }
    return history;
}

void ScriptedModel::write_logits(const History& history, std::span<float> row) {
    const std::span<const int32_t> ids = history.ids;
    const std::span<const int32_t> prompt = ids.first(history.prompt_tokens);
    const size_t num_generated = ids.size() - prompt.size();
    if (const Script* script = find_script(prompt)) {
        std::fill(row.begin(), row.end(), 0.0f);
        const int32_t next = num_generated < script->continuation.size()
                                 ? script->continuation[num_generated]
                                 : script->end_id;
        row[static_cast<size_t>(next)] = kScriptedLogit;
    } else {
        const uint64_t hash = hash_ids(ids);
        for (size_t id = 0; id < row.size(); ++id) row[id] = hashed_logit(hash, id);
    }
    if (logits_hook_) logits_hook_(prompt, static_cast<int32_t>(num_generated), row);
}

const ScriptedModel::Script* ScriptedModel::find_script(std::span<const int32_t> prompt) const {
    const auto own = scripts_.find({prompt.begin(), prompt.end()});
    if (own != scripts_.end()) return &own->second;
    return default_script_.empty() ? nullptr : &default_script_.front();
}

}  // namespace k3pod::testing

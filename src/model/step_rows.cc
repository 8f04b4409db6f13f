#include "model/step_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3pod {

RowRange ChunkRows::logits_rows() const {
    switch (chunk->logits) {
        case SequenceChunk::Logits::kNone:
            return {rows.begin, 0};
        case SequenceChunk::Logits::kLast:
            return {rows.begin + rows.count - 1, 1};
        case SequenceChunk::Logits::kAll:
            return rows;
    }
    return {};
}

StepRows::StepRows(int32_t max_rows, int32_t vocab, int32_t num_slots)
    : max_rows_(max_rows), vocab_(vocab), seen_in_(static_cast<size_t>(num_slots), 0) {
    chunks_.reserve(static_cast<size_t>(max_rows));
}

Status StepRows::assign(const ModelStep& step) {
    chunks_.clear();
    count_ = num_logits_ = 0;
    ++serial_;
    for (size_t i = 0; i < step.chunks.size(); ++i) {
        const SequenceChunk& chunk = step.chunks[i];
        K3POD_TRY(check(chunk, i));
        chunks_.push_back({&chunk, {count_, static_cast<int32_t>(chunk.ids.size())}});
        count_ += chunks_.back().rows.count;
        num_logits_ += chunks_.back().logits_rows().count;
    }
    return Status::ok();
}

Status StepRows::check(const SequenceChunk& chunk, size_t index) {
    const auto refuse = [&](const std::string& why) {
        return invalid_argument(fmt::format("chunk {} of the step: {}", index, why));
    };
    const int64_t tokens = static_cast<int64_t>(chunk.ids.size());
    if (tokens == 0) return refuse("it has no tokens");
    if (count_ + tokens > max_rows_) {
        return refuse(fmt::format("its {} tokens behind {} others exceed the {} rows of a step",
                                  tokens, count_, max_rows_));
    }
    const SequenceState* state = chunk.state;
    if (state == nullptr || state->slot < 0 || state->slot >= std::ssize(seen_in_)) {
        return refuse("its sequence owns no slot");
    }
    uint64_t& seen_in = seen_in_[static_cast<size_t>(state->slot)];
    if (seen_in == serial_) return refuse(fmt::format("slot {} is in the step twice", state->slot));
    seen_in = serial_;

    const int64_t room = std::ssize(state->pages) * kPageTokens;
    if (chunk.position < 0 || chunk.position + tokens > room) {
        return refuse(fmt::format("tokens [{}, {}) do not fit its {} pages of {}", chunk.position,
                                  chunk.position + tokens, state->pages.size(), kPageTokens));
    }
    const auto bad =
        std::ranges::find_if(chunk.ids, [&](int32_t id) { return id < 0 || id >= vocab_; });
    if (bad != chunk.ids.end()) {
        return refuse(fmt::format("token id {} is not in [0, {})", *bad, vocab_));
    }
    return Status::ok();
}

}  // namespace k3pod

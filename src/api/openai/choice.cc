#include "choice.h"

#include <utility>

namespace k3pod {

bool Choice::push(const SampledToken& token, std::vector<Piece>& pieces) {
    ++usage_.completion_tokens;
    ids_.push_back(token.id);
    const bool is_asked_stop = setup_.stop_token_ids.count(token.id) != 0;
    if (is_asked_stop) stop_reason_ = token.id;
    ChoiceReader& reader = *setup_.reader;
    if (is_asked_stop ? !setup_.include_stop_text : setup_.end_ids.count(token.id) != 0) {
        reader.push_hidden(token);
        return true;
    }
    const bool may_stop = usage_.completion_tokens > setup_.min_tokens;
    reader.push(token, may_stop, pieces);
    if (reader.in_reasoning()) ++usage_.reasoning_tokens;
    if (reader.matched_stop() == nullptr) return true;
    stop_reason_ = *reader.matched_stop();
    return false;
}

void Choice::finish(FinishReason reason, std::vector<Piece>& pieces) {
    setup_.reader->finish(pieces);
    if (reason == FinishReason::kLength) {
        finish_reason_ = "length";
    } else if (setup_.reader->num_tool_calls() > 0) {
        finish_reason_ = "tool_calls";
    }
}

std::vector<int32_t> Choice::take_ids() {
    return std::exchange(ids_, {});
}

}  // namespace k3pod

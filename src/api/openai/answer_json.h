#pragma once
// JSON objects that several formats share.

#include <string>
#include <vector>

#include "api/openai/answer_format.h"

namespace k3pod {

// Never throws: text that is not UTF-8 is replaced.
std::string dump(const OrderedJson& json);
std::string sse_event(const OrderedJson& json);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";

OrderedJson usage_json(const Usage& usage);
OrderedJson stop_reason_json(const StopReason& reason);  // null: none
std::string tool_call_id(const AnswerInfo& info, const std::string& name, int32_t tool_index);

// One entry per token for logprobs.content of chat. `bytes` are the token's own, also where they
// are only a part of a character.
OrderedJson chat_logprobs(const std::vector<SampledToken>& tokens, const Tokenizer& tokenizer);

// The parallel lists of text completions. `num_chars` counts on over the tokens of a choice.
struct TextLogprobs {
    OrderedJson tokens = OrderedJson::array();
    OrderedJson token_logprobs = OrderedJson::array();
    OrderedJson top_logprobs = OrderedJson::array();
    OrderedJson text_offset = OrderedJson::array();

    void add(const SampledToken& token, const Tokenizer& tokenizer, int64_t& num_chars);
    OrderedJson json(bool with_top) const;
};

}  // namespace k3pod

#pragma once
// The bytes of an answer: one implementation for each of chat and text, streamed and whole.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/openai/choice.h"
#include "api/openai/piece.h"
#include "api/openai/request_params.h"
#include "k3pod/tokenizer/tokenizer.h"

namespace k3pod {

using OrderedJson = nlohmann::ordered_json;

// What all chunks of an answer have in common.
struct AnswerInfo {
    std::string id;
    std::string model;
    int64_t created = 0;  // seconds since the epoch
    RequestParams params;
    std::vector<std::vector<int32_t>> prompts;  // one per num_choices choices
    bool include_reasoning = true;
    int32_t num_earlier_calls = 0;

    const std::vector<int32_t>& prompt_of(const Choice& choice) const {
        return prompts[static_cast<size_t>(choice.index() / params.num_choices)];
    }
};

// Called in the order of events. Each call appends bytes to `out`, maybe none; a whole answer adds
// them all in end_all().
class AnswerFormat {
  public:
    virtual ~AnswerFormat() = default;
    // With the first token of a choice, or with its end if it has none.
    virtual void begin(Choice& choice, std::string& out) = 0;
    virtual void piece(Choice& choice, const Piece& piece, std::string& out) = 0;
    virtual void end(Choice& choice, std::string& out) = 0;
    virtual void end_all(const Usage& total, std::string& out) = 0;
};

// All borrow info and tokenizer.
std::unique_ptr<AnswerFormat> make_chat_stream(const AnswerInfo& info, const Tokenizer& tokenizer);
std::unique_ptr<AnswerFormat> make_chat_body(const AnswerInfo& info, const Tokenizer& tokenizer);
std::unique_ptr<AnswerFormat> make_text_stream(const AnswerInfo& info, const Tokenizer& tokenizer);
std::unique_ptr<AnswerFormat> make_text_body(const AnswerInfo& info, const Tokenizer& tokenizer);

}  // namespace k3pod

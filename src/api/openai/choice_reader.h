#pragma once
// Generated ids of one choice to visible pieces: detokenising, K3's channels, stop strings, and
// which token belongs to which text.

#include <memory>
#include <string>
#include <vector>

#include "api/openai/piece.h"
#include "k3pod/tokenizer/tokenizer.h"

namespace k3pod {

struct ReaderOptions {
    const std::vector<std::string>* stops = nullptr;  // borrowed
    bool include_stop_text = false;
    bool keep_logprobs = false;
};

class ChoiceReader {
  public:
    virtual ~ChoiceReader() = default;
    // Appends what this token makes visible. Stop strings count only when `may_stop`.
    virtual void push(const SampledToken& token, bool may_stop, std::vector<Piece>& pieces) = 0;
    // A token that ends the choice and whose text is not shown.
    virtual void push_hidden(const SampledToken& token) = 0;
    // The end: appends what was held back, unless a stop string ended it.
    virtual void finish(std::vector<Piece>& pieces) = 0;
    // The stop string that ended the text; null: none.
    virtual const std::string* matched_stop() const = 0;
    // The id pushed last counted as reasoning.
    virtual bool in_reasoning() const = 0;
    virtual int32_t num_tool_calls() const = 0;
};

// Chat: reasoning, content and tool calls by token id. Logprobs are those of content tokens, as
// OpenAI defines them, so that their bytes join to the content. Borrows the tokenizer.
std::unique_ptr<ChoiceReader> make_chat_reader(const Tokenizer& tokenizer, bool starts_in_think,
                                               const ReaderOptions& options);

// Text completions: every token's text, control ids by their spelling unless skipped. Logprobs of
// all tokens. Borrows the tokenizer.
std::unique_ptr<ChoiceReader> make_text_reader(const Tokenizer& tokenizer, bool skip_special_tokens,
                                               const ReaderOptions& options);

}  // namespace k3pod

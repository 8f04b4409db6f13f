#include <utility>

#include "api/openai/choice_reader.h"
#include "api/openai/stop_filter.h"

namespace k3pod {
namespace {

class TextReader final : public ChoiceReader {
  public:
    TextReader(const Tokenizer& tokenizer, bool skip_special_tokens, const ReaderOptions& options)
        : tokenizer_(tokenizer),
          skip_special_tokens_(skip_special_tokens),
          keeps_logprobs_(options.keep_logprobs),
          filter_(*options.stops, options.include_stop_text) {}

    void push(const SampledToken& token, bool may_stop, std::vector<Piece>& pieces) override {
        if (keeps_logprobs_) logprobs_.push_back(token);
        if (skip_special_tokens_ && tokenizer_.is_special(token.id)) return;
        const std::string text = assembler_.push(tokenizer_.bytes(token.id));
        add(may_stop ? filter_.push(text) : filter_.flush() + text, pieces);
    }

    void push_hidden(const SampledToken& token) override {
        if (keeps_logprobs_) logprobs_.push_back(token);
    }

    void finish(std::vector<Piece>& pieces) override {
        if (matched_stop() == nullptr) {
            std::string rest = filter_.push(assembler_.finish());
            rest += filter_.flush();
            add(std::move(rest), pieces);
        }
        if (logprobs_.empty()) return;
        pieces.push_back({.text = {}, .logprobs = std::exchange(logprobs_, {})});
    }

    const std::string* matched_stop() const override { return filter_.matched(); }
    bool in_reasoning() const override { return false; }
    int32_t num_tool_calls() const override { return 0; }

  private:
    void add(std::string text, std::vector<Piece>& pieces) {
        if (text.empty()) return;
        pieces.push_back({.text = std::move(text), .logprobs = std::exchange(logprobs_, {})});
    }

    const Tokenizer& tokenizer_;
    const bool skip_special_tokens_;
    const bool keeps_logprobs_;
    Utf8Assembler assembler_;
    StopFilter filter_;
    std::vector<SampledToken> logprobs_;  // of tokens whose text is not shown yet
};

}  // namespace

std::unique_ptr<ChoiceReader> make_text_reader(const Tokenizer& tokenizer, bool skip_special_tokens,
                                               const ReaderOptions& options) {
    return std::make_unique<TextReader>(tokenizer, skip_special_tokens, options);
}

}  // namespace k3pod

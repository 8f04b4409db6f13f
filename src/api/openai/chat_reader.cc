#include <utility>
#include <variant>

#include "api/openai/choice_reader.h"
#include "api/openai/content_logprobs.h"
#include "api/openai/stop_filter.h"
#include "k3pod/api/chat.h"

namespace k3pod {
namespace {

class ChatReader final : public ChoiceReader {
  public:
    ChatReader(const Tokenizer& tokenizer, bool starts_in_think, const ReaderOptions& options)
        : parser_(tokenizer, starts_in_think),
          reasoning_(*options.stops, options.include_stop_text),
          content_(*options.stops, options.include_stop_text),
          tokenizer_(tokenizer),
          keeps_logprobs_(options.keep_logprobs) {}

    void push(const SampledToken& token, bool may_stop, std::vector<Piece>& pieces) override {
        events_.clear();
        parser_.push(token.id, events_);
        if (keeps_logprobs_ && is_content_token(token.id)) logprobs_.add(token);
        may_stop_ = may_stop;
        show_events(pieces);
    }

    void push_hidden(const SampledToken&) override {}

    void finish(std::vector<Piece>& pieces) override {
        events_.clear();
        parser_.finish(events_);
        show_events(pieces);
        if (matched_stop() != nullptr) return;
        flush_reasoning(pieces);
        flush_content(pieces);
    }

    const std::string* matched_stop() const override {
        return reasoning_.matched() != nullptr ? reasoning_.matched() : content_.matched();
    }
    bool in_reasoning() const override { return parser_.in_reasoning(); }
    int32_t num_tool_calls() const override { return parser_.num_tool_calls(); }

  private:
    // Its text is content, or will be once the character that it holds a part of is complete. Other
    // ids without an event are markers and tag names, and those are ASCII.
    bool is_content_token(int32_t id) const {
        for (const ChatEvent& event : events_) {
            if (std::holds_alternative<ContentDelta>(event)) return true;
        }
        const std::string_view bytes = tokenizer_.bytes(id);
        return events_.empty() && !in_call_ && !parser_.in_reasoning() && !bytes.empty() &&
               static_cast<unsigned char>(bytes[0]) >= 0x80;
    }

    void show_events(std::vector<Piece>& pieces) {
        for (ChatEvent& event : events_) {
            if (matched_stop() != nullptr) return;
            std::visit([&](auto& e) { show(e, pieces); }, event);
        }
    }

    void show(ReasoningDelta& delta, std::vector<Piece>& pieces) {
        add_text(Piece::Kind::kReasoning, filtered(reasoning_, delta.text), pieces);
    }
    void show(ReasoningEnd&, std::vector<Piece>& pieces) {
        flush_reasoning(pieces);
        pieces.push_back({.kind = Piece::Kind::kReasoningEnd});
    }
    void show(ContentDelta& delta, std::vector<Piece>& pieces) {
        flush_reasoning(pieces);
        logprobs_.on_text(delta.text.size());
        add_content(filtered(content_, delta.text), pieces);
    }
    // Stop strings are not looked for in the arguments of a call: half a call is of no use.
    void show(ToolCallBegin& begin, std::vector<Piece>& pieces) {
        flush_reasoning(pieces);
        flush_content(pieces);
        in_call_ = true;
        pieces.push_back({.kind = Piece::Kind::kToolBegin,
                          .text = std::move(begin.name),
                          .tool_index = begin.index});
    }
    void show(ToolCallArguments& arguments, std::vector<Piece>& pieces) {
        if (arguments.json.empty()) return;
        pieces.push_back({.kind = Piece::Kind::kToolArguments,
                          .text = std::move(arguments.json),
                          .tool_index = arguments.index});
    }
    void show(ToolCallEnd&, std::vector<Piece>&) { in_call_ = false; }

    std::string filtered(StopFilter& filter, const std::string& text) const {
        if (may_stop_) return filter.push(text);
        return filter.flush() + text;
    }
    void flush_reasoning(std::vector<Piece>& pieces) {
        add_text(Piece::Kind::kReasoning, reasoning_.flush(), pieces);
    }
    void flush_content(std::vector<Piece>& pieces) { add_content(content_.flush(), pieces); }

    static void add_text(Piece::Kind kind, std::string text, std::vector<Piece>& pieces) {
        if (!text.empty()) pieces.push_back({.kind = kind, .text = std::move(text)});
    }
    void add_content(std::string text, std::vector<Piece>& pieces) {
        if (text.empty()) return;
        const size_t num_bytes = text.size();
        pieces.push_back({.text = std::move(text), .logprobs = logprobs_.take(num_bytes)});
    }

    ChatOutputParser parser_;
    StopFilter reasoning_, content_;
    const Tokenizer& tokenizer_;
    const bool keeps_logprobs_;
    ContentLogprobs logprobs_;
    bool may_stop_ = true;
    bool in_call_ = false;
    std::vector<ChatEvent> events_;  // of the id in work
};

}  // namespace

std::unique_ptr<ChoiceReader> make_chat_reader(const Tokenizer& tokenizer, bool starts_in_think,
                                               const ReaderOptions& options) {
    return std::make_unique<ChatReader>(tokenizer, starts_in_think, options);
}

}  // namespace k3pod

#include <utility>

#include "api/openai/answer_format.h"
#include "api/openai/answer_json.h"

namespace k3pod {
namespace {

struct Call {
    std::string name, arguments;
};

struct Message {
    std::string reasoning, content;
    std::vector<Call> calls;
    OrderedJson logprobs = OrderedJson::array();
};

class ChatBody final : public AnswerFormat {
  public:
    ChatBody(const AnswerInfo& info, const Tokenizer& tokenizer)
        : info_(info),
          tokenizer_(tokenizer),
          messages_(static_cast<size_t>(info.params.num_choices)),
          choices_(messages_.size()) {}

    void begin(Choice&, std::string&) override {}

    void piece(Choice& choice, const Piece& piece, std::string&) override {
        Message& message = messages_[static_cast<size_t>(choice.index())];
        for (OrderedJson& entry : chat_logprobs(piece.logprobs, tokenizer_)) {
            message.logprobs.push_back(std::move(entry));
        }
        switch (piece.kind) {
            case Piece::Kind::kReasoning:
                message.reasoning += piece.text;
                break;
            case Piece::Kind::kReasoningEnd:
                break;
            case Piece::Kind::kContent:
                message.content += piece.text;
                break;
            case Piece::Kind::kToolBegin:
                message.calls.push_back({piece.text, {}});
                break;
            case Piece::Kind::kToolArguments:
                message.calls.back().arguments += piece.text;
                break;
        }
    }

    void end(Choice& choice, std::string&) override {
        const auto slot = static_cast<size_t>(choice.index());
        const Message& message = messages_[slot];
        OrderedJson entry{{"index", choice.index()}, {"message", message_json(message)}};
        const bool has_logprobs = info_.params.sampling.num_logprobs >= 0;
        entry["logprobs"] =
            has_logprobs ? OrderedJson{{"content", message.logprobs}} : OrderedJson(nullptr);
        entry["finish_reason"] = choice.finish_reason();
        entry["stop_reason"] = stop_reason_json(choice.stop_reason());
        if (info_.params.return_token_ids) entry["token_ids"] = choice.take_ids();
        choices_[slot] = std::move(entry);
    }

    void end_all(const Usage& total, std::string& out) override {
        OrderedJson body{
            {"id", info_.id},       {"object", "chat.completion"},    {"created", info_.created},
            {"model", info_.model}, {"choices", std::move(choices_)}, {"usage", usage_json(total)}};
        if (info_.params.return_token_ids) body["prompt_token_ids"] = info_.prompts[0];
        out += dump(body);
    }

  private:
    OrderedJson message_json(const Message& message) const {
        OrderedJson json{{"role", "assistant"}, {"content", message.content}};
        if (message.content.empty() && !message.calls.empty()) json["content"] = nullptr;
        if (info_.include_reasoning && !message.reasoning.empty()) {
            json["reasoning_content"] = message.reasoning;
        }
        for (size_t i = 0; i < message.calls.size(); ++i) {
            const Call& call = message.calls[i];
            json["tool_calls"].push_back(
                {{"id", tool_call_id(info_, call.name, static_cast<int32_t>(i))},
                 {"type", "function"},
                 {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
        }
        return json;
    }

    const AnswerInfo& info_;
    const Tokenizer& tokenizer_;
    std::vector<Message> messages_;     // by index of the choice
    std::vector<OrderedJson> choices_;  // the same, finished
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_body(const AnswerInfo& info, const Tokenizer& tokenizer) {
    return std::make_unique<ChatBody>(info, tokenizer);
}

}  // namespace k3pod

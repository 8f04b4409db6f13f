#include <string_view>
#include <utility>

#include "api/openai/answer_format.h"
#include "api/openai/answer_json.h"

namespace k3pod {
namespace {

// Chunks as both OpenAI's clients and Kimi's vendor checks want them: one choice and one kind of
// increment per chunk, keys without a value left out, a chunk of its own for the end.
class ChatStream final : public AnswerFormat {
  public:
    ChatStream(const AnswerInfo& info, const Tokenizer& tokenizer)
        : info_(info), tokenizer_(tokenizer) {}

    void begin(Choice& choice, std::string& out) override {
        OrderedJson head = chunk(choice, {{"role", "assistant"}, {"content", ""}});
        if (info_.params.return_token_ids) head["prompt_token_ids"] = info_.prompt_of(choice);
        out += sse_event(head);
    }

    void piece(Choice& choice, const Piece& piece, std::string& out) override {
        if (is_hidden(piece)) return;
        add_ids(choice, chunk(choice, delta_of(piece)), piece.logprobs, out);
    }

    void end(Choice& choice, std::string& out) override {
        // The markers behind the last text belong to the ids, and the end's delta must be empty.
        if (info_.params.include_internal_content) {
            add_ids(choice, chunk(choice, OrderedJson::object()), {}, out);
        }
        OrderedJson last = chunk(choice, OrderedJson::object());
        OrderedJson& entry = last["choices"][0];
        entry["finish_reason"] = choice.finish_reason();
        if (const OrderedJson reason = stop_reason_json(choice.stop_reason()); !reason.is_null()) {
            entry["stop_reason"] = reason;
        }
        if (info_.params.return_token_ids) entry["token_ids"] = choice.take_ids();
        entry["usage"] = usage_json(choice.usage());
        out += sse_event(last);
    }

    void end_all(const Usage& total, std::string& out) override {
        if (info_.params.include_usage) {
            OrderedJson last = envelope();
            last["choices"] = OrderedJson::array();
            last["usage"] = usage_json(total);
            out += sse_event(last);
        }
        out += kSseDone;
    }

  private:
    bool is_hidden(const Piece& piece) const {
        return !info_.include_reasoning &&
               (piece.kind == Piece::Kind::kReasoning || piece.kind == Piece::Kind::kReasoningEnd);
    }

    OrderedJson envelope() const {
        return {{"id", info_.id},
                {"object", "chat.completion.chunk"},
                {"created", info_.created},
                {"model", info_.model}};
    }

    OrderedJson chunk(const Choice& choice, OrderedJson delta) const {
        OrderedJson json = envelope();
        OrderedJson entry{
            {"index", choice.index()}, {"delta", std::move(delta)}, {"finish_reason", nullptr}};
        json["choices"] = OrderedJson::array({std::move(entry)});
        if (info_.params.continuous_usage) json["usage"] = usage_json(choice.usage());
        return json;
    }

    OrderedJson delta_of(const Piece& piece) const {
        switch (piece.kind) {
            case Piece::Kind::kReasoning:
            case Piece::Kind::kReasoningEnd:
                return {{"reasoning_content", piece.text}};
            case Piece::Kind::kContent:
                return {{"content", piece.text}};
            case Piece::Kind::kToolBegin:
                return call_delta({{"index", piece.tool_index},
                                   {"id", tool_call_id(info_, piece.text, piece.tool_index)},
                                   {"type", "function"},
                                   {"function", {{"name", piece.text}, {"arguments", ""}}}});
            case Piece::Kind::kToolArguments:
                return call_delta(
                    {{"index", piece.tool_index}, {"function", {{"arguments", piece.text}}}});
        }
        return {};
    }

    static OrderedJson call_delta(OrderedJson call) {
        return {{"tool_calls", OrderedJson::array({std::move(call)})}};
    }

    // Sends `json` with what the client wants to know of the tokens behind it.
    void add_ids(Choice& choice, OrderedJson json, const std::vector<SampledToken>& logprobs,
                 std::string& out) const {
        OrderedJson& entry = json["choices"][0];
        if (!logprobs.empty())
            entry["logprobs"] = {{"content", chat_logprobs(logprobs, tokenizer_)}};
        const std::vector<int32_t> ids = choice.take_ids();
        if (info_.params.return_token_ids) entry["token_ids"] = ids;
        if (info_.params.include_internal_content) {
            entry["delta"]["internal_content"] = {{"token_ids", ids}};
        }
        out += sse_event(json);
    }

    const AnswerInfo& info_;
    const Tokenizer& tokenizer_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_stream(const AnswerInfo& info, const Tokenizer& tokenizer) {
    return std::make_unique<ChatStream>(info, tokenizer);
}

}  // namespace k3pod

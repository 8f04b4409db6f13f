#include <utility>

#include "api/openai/answer_format.h"
#include "api/openai/answer_json.h"

namespace k3pod {
namespace {

OrderedJson text_envelope(const AnswerInfo& info) {
    return {{"id", info.id},
            {"object", "text_completion"},
            {"created", info.created},
            {"model", info.model}};
}

bool wants_logprobs(const AnswerInfo& info) {
    return info.params.sampling.num_logprobs >= 0;
}

// All but the ids.
OrderedJson text_choice(const AnswerInfo& info, const Choice& choice, std::string text,
                        const TextLogprobs& logprobs) {
    const bool with_top = info.params.sampling.num_logprobs > 0;
    return {{"index", choice.index()},
            {"text", std::move(text)},
            {"logprobs", wants_logprobs(info) ? logprobs.json(with_top) : OrderedJson(nullptr)},
            {"finish_reason", nullptr},
            {"stop_reason", nullptr}};
}

void set_end(const Choice& choice, OrderedJson& entry) {
    entry["finish_reason"] = choice.finish_reason();
    entry["stop_reason"] = stop_reason_json(choice.stop_reason());
}

class TextStream final : public AnswerFormat {
  public:
    TextStream(const AnswerInfo& info, const Tokenizer& tokenizer)
        : info_(info),
          tokenizer_(tokenizer),
          num_chars_(info.prompts.size() * static_cast<size_t>(info.params.num_choices)) {}

    void begin(Choice& choice, std::string& out) override {
        if (!info_.params.return_token_ids) return;
        OrderedJson entry = text_choice(info_, choice, {}, {});
        entry["prompt_token_ids"] = info_.prompt_of(choice);
        send(choice, std::move(entry), out);
    }

    void piece(Choice& choice, const Piece& piece, std::string& out) override {
        TextLogprobs logprobs;
        for (const SampledToken& token : piece.logprobs) {
            logprobs.add(token, tokenizer_, num_chars_[static_cast<size_t>(choice.index())]);
        }
        OrderedJson entry = text_choice(info_, choice, piece.text, logprobs);
        if (info_.params.return_token_ids) entry["token_ids"] = choice.take_ids();
        send(choice, std::move(entry), out);
    }

    void end(Choice& choice, std::string& out) override {
        OrderedJson entry = text_choice(info_, choice, {}, {});
        set_end(choice, entry);
        if (info_.params.return_token_ids) entry["token_ids"] = choice.take_ids();
        send(choice, std::move(entry), out);
    }

    void end_all(const Usage& total, std::string& out) override {
        if (info_.params.include_usage) {
            OrderedJson last = text_envelope(info_);
            last["choices"] = OrderedJson::array();
            last["usage"] = usage_json(total);
            out += sse_event(last);
        }
        out += kSseDone;
    }

  private:
    void send(const Choice& choice, OrderedJson entry, std::string& out) const {
        OrderedJson json = text_envelope(info_);
        json["choices"] = OrderedJson::array({std::move(entry)});
        if (info_.params.continuous_usage) json["usage"] = usage_json(choice.usage());
        out += sse_event(json);
    }

    const AnswerInfo& info_;
    const Tokenizer& tokenizer_;
    std::vector<int64_t> num_chars_;  // by index of the choice, for text_offset
};

class TextBody final : public AnswerFormat {
  public:
    TextBody(const AnswerInfo& info, const Tokenizer& tokenizer)
        : info_(info),
          tokenizer_(tokenizer),
          texts_(info.prompts.size() * static_cast<size_t>(info.params.num_choices)),
          choices_(texts_.size()) {}

    void begin(Choice&, std::string&) override {}

    void piece(Choice& choice, const Piece& piece, std::string&) override {
        Text& text = texts_[static_cast<size_t>(choice.index())];
        text.text += piece.text;
        for (const SampledToken& token : piece.logprobs) {
            text.logprobs.add(token, tokenizer_, text.num_chars);
        }
    }

    void end(Choice& choice, std::string&) override {
        const auto slot = static_cast<size_t>(choice.index());
        OrderedJson entry = text_choice(info_, choice, texts_[slot].text, texts_[slot].logprobs);
        set_end(choice, entry);
        if (info_.params.return_token_ids) {
            entry["prompt_token_ids"] = info_.prompt_of(choice);
            entry["token_ids"] = choice.take_ids();
        }
        choices_[slot] = std::move(entry);
    }

    void end_all(const Usage& total, std::string& out) override {
        OrderedJson body = text_envelope(info_);
        body["choices"] = std::move(choices_);
        body["usage"] = usage_json(total);
        out += dump(body);
    }

  private:
    struct Text {
        std::string text;
        TextLogprobs logprobs;
        int64_t num_chars = 0;
    };

    const AnswerInfo& info_;
    const Tokenizer& tokenizer_;
    std::vector<Text> texts_;           // by index of the choice
    std::vector<OrderedJson> choices_;  // the same, finished
};

}  // namespace

std::unique_ptr<AnswerFormat> make_text_stream(const AnswerInfo& info, const Tokenizer& tokenizer) {
    return std::make_unique<TextStream>(info, tokenizer);
}

std::unique_ptr<AnswerFormat> make_text_body(const AnswerInfo& info, const Tokenizer& tokenizer) {
    return std::make_unique<TextBody>(info, tokenizer);
}

}  // namespace k3pod

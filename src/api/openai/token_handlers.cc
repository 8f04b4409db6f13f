#include "token_handlers.h"

#include <utility>
#include <variant>

#include "api/openai/answer_json.h"
#include "api/openai/chat_request.h"
#include "api/openai/status_error.h"

namespace k3pod {
namespace {

using Ids = std::vector<int32_t>;

// Plain text under either of its names, or a conversation rendered as for /v1/chat/completions.
Ids read_tokens(const ApiContext& context, const JsonFields& fields, Refusal& refusal) {
    Ids ids;
    if (fields.has("messages")) {
        const ChatPrompt prompt = read_chat_prompt(fields);
        if (refusal.is_refused()) return ids;
        auto rendered = render_chat(prompt, context.wording, context.tokenizer);
        if (!rendered) refusal.refuse(to_api_error(rendered.status()));
        return rendered ? std::move(rendered).value() : ids;
    }
    const auto text = fields.has("content") ? fields.find("content") : fields.required("prompt");
    if (text) context.tokenizer.encode(text->text(), ids);
    return ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
    Utf8Assembler assembler;
    std::string text;
    for (const int32_t id : ids) text += assembler.push(tokenizer.bytes(id));
    return text += assembler.finish();
}

HttpResponse json_response(const OrderedJson& json) {
    return {.body = dump(json)};
}

}  // namespace

HttpResponse tokenize(const ApiContext& context, const HttpRequest& request) {
    Refusal refusal;
    const JsonFields fields(request.body, refusal);
    const bool with_texts = fields.boolean("return_token_strs", false);
    const Ids ids = refusal.is_refused() ? Ids() : read_tokens(context, fields, refusal);
    if (refusal.is_refused()) return error_response(refusal.error());
    OrderedJson json{
        {"count", ids.size()}, {"max_model_len", context.service.max_model_len()}, {"tokens", ids}};
    if (with_texts) {
        json["token_strs"] = OrderedJson::array();
        for (const int32_t id : ids) json["token_strs"].push_back(decode(context.tokenizer, {id}));
    }
    return json_response(json);
}

HttpResponse detokenize(const ApiContext& context, const HttpRequest& request) {
    Refusal refusal;
    const JsonFields fields(request.body, refusal);
    const auto tokens = refusal.is_refused() ? std::nullopt : fields.required("tokens");
    const Ids ids = tokens ? tokens->ids(context.service.vocab_size()) : Ids();
    if (refusal.is_refused()) return error_response(refusal.error());
    return json_response({{"prompt", decode(context.tokenizer, ids)}});
}

}  // namespace k3pod

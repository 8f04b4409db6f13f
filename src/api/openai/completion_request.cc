#include "completion_request.h"

#include <fmt/format.h>

#include <optional>

namespace k3pod {
namespace {

// What OpenAI's endpoint takes when a request names no limit.
constexpr int32_t kDefaultMaxTokens = 16;

// Kind of the first item of an array; nullopt for an empty one.
std::optional<JsonKind> first_kind(const JsonValue& array) {
    JsonReader in(array.source());
    in.begin_array();
    if (!in.next_item()) return std::nullopt;
    return in.peek();
}

TextPrompt read_item(const JsonValue& item, JsonKind kind, int32_t vocab) {
    if (kind == JsonKind::kArray) return item.ids(vocab);
    return item.text();
}

// A text, a list of texts, token ids, or a list of lists of token ids.
std::vector<TextPrompt> read_prompts(const JsonFields& fields, int32_t vocab) {
    const auto value = fields.required("prompt");
    if (!value) return {};
    if (value->kind() == JsonKind::kString) return {value->text()};
    const auto kind =
        value->kind() == JsonKind::kArray ? first_kind(*value) : std::optional<JsonKind>();
    if (kind == JsonKind::kNumber) return {value->ids(vocab)};
    std::vector<TextPrompt> prompts;
    if (kind != JsonKind::kString && kind != JsonKind::kArray) {
        value->refuse_unless(false, "a string, token ids, or a list of either");
        return prompts;
    }
    value->items([&](const JsonValue& item) {
        prompts.push_back(read_item(item, *kind, vocab));
        if (prompts.size() > kMaxChoices) {
            value->refuse(fmt::format("there may be at most {} prompts", kMaxChoices));
        }
    });
    return prompts;
}

void refuse_unsupported(const JsonFields& fields, int32_t num_choices) {
    if (const auto echo = fields.find("echo"); echo && echo->boolean()) {
        echo->refuse("is not supported; ask for return_token_ids to see the prompt's tokens");
    }
    if (const auto suffix = fields.find("suffix"); suffix && !suffix->text().empty()) {
        suffix->refuse("is not supported; this model does not fill in the middle");
    }
    if (const auto best_of = fields.find("best_of")) {
        if (best_of->integer(1, kMaxChoices) != num_choices) {
            best_of->refuse("is only supported when it equals n");
        }
    }
}

}  // namespace

std::variant<CompletionRequest, ApiError> parse_completion_request(std::string_view body,
                                                                   const RequestRules& rules) {
    Refusal refusal;
    const JsonFields fields(body, refusal);
    if (refusal.is_refused()) return refusal.error();
    CompletionRequest request;
    request.params = read_params(fields, rules);
    read_max_tokens(fields, {"max_tokens"}, kDefaultMaxTokens, request.params);
    request.params.sampling.num_logprobs =
        static_cast<int32_t>(fields.integer("logprobs", -1, 0, kMaxLogprobs));
    request.skip_special_tokens = fields.boolean("skip_special_tokens", true);
    refuse_unsupported(fields, request.params.num_choices);
    request.prompts = read_prompts(fields, rules.vocab);
    const auto num_choices =
        static_cast<int64_t>(request.prompts.size()) * request.params.num_choices;
    if (num_choices > kMaxChoices) {
        refusal.refuse(
            too_many_choices(request.prompts.size(), request.params.num_choices, kMaxChoices));
    }
    if (refusal.is_refused()) return refusal.error();
    return request;
}

}  // namespace k3pod

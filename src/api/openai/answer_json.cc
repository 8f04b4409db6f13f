#include "answer_json.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3pod {
namespace {

// JSON has no minus infinity; clients know this number from other servers.
constexpr float kLowestLogprob = -9999;

double finite(float logprob) {
    return static_cast<double>(std::max(logprob, kLowestLogprob));
}

std::string token_text(int32_t id, const Tokenizer& tokenizer) {
    Utf8Assembler assembler;
    std::string text = assembler.push(tokenizer.bytes(id));
    text += assembler.finish();
    return text;
}

OrderedJson chat_entry(const TokenLogprob& entry, const Tokenizer& tokenizer) {
    OrderedJson bytes = OrderedJson::array();
    for (const char byte : tokenizer.bytes(entry.id)) bytes.push_back(static_cast<uint8_t>(byte));
    return {{"token", token_text(entry.id, tokenizer)},
            {"logprob", finite(entry.logprob)},
            {"bytes", std::move(bytes)}};
}

int64_t count_chars(const std::string& utf8) {
    return std::count_if(utf8.begin(), utf8.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

std::string dump(const OrderedJson& json) {
    return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string sse_event(const OrderedJson& json) {
    return "data: " + dump(json) + "\n\n";
}

OrderedJson usage_json(const Usage& usage) {
    return {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
            {"prompt_tokens_details", {{"cached_tokens", 0}}},
            {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

OrderedJson stop_reason_json(const StopReason& reason) {
    if (const auto* text = std::get_if<std::string>(&reason)) return *text;
    if (const auto* id = std::get_if<int32_t>(&reason)) return *id;
    return nullptr;
}

std::string tool_call_id(const AnswerInfo& info, const std::string& name, int32_t tool_index) {
    return fmt::format("{}_{}", name, info.num_earlier_calls + tool_index);
}

OrderedJson chat_logprobs(const std::vector<SampledToken>& tokens, const Tokenizer& tokenizer) {
    OrderedJson entries = OrderedJson::array();
    for (const SampledToken& token : tokens) {
        OrderedJson entry = chat_entry(token.logprob, tokenizer);
        OrderedJson top = OrderedJson::array();
        for (const TokenLogprob& other : token.top) top.push_back(chat_entry(other, tokenizer));
        entry["top_logprobs"] = std::move(top);
        entries.push_back(std::move(entry));
    }
    return entries;
}

void TextLogprobs::add(const SampledToken& token, const Tokenizer& tokenizer, int64_t& num_chars) {
    const std::string text = token_text(token.id, tokenizer);
    OrderedJson top = OrderedJson::object();
    // Best first, so of ids with the same text the best counts; the chosen one is always there.
    for (const TokenLogprob& entry : token.top) {
        top.emplace(token_text(entry.id, tokenizer), finite(entry.logprob));
    }
    top.emplace(text, finite(token.logprob.logprob));
    tokens.push_back(text);
    token_logprobs.push_back(finite(token.logprob.logprob));
    top_logprobs.push_back(std::move(top));
    text_offset.push_back(num_chars);
    num_chars += count_chars(text);
}

OrderedJson TextLogprobs::json(bool with_top) const {
    return {{"tokens", tokens},
            {"token_logprobs", token_logprobs},
            {"top_logprobs", with_top ? top_logprobs : OrderedJson(nullptr)},
            {"text_offset", text_offset}};
}

}  // namespace k3pod

#include "generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "api/openai/chat_request.h"
#include "api/openai/completion_request.h"
#include "api/openai/status_error.h"

namespace k3pod {

namespace {

ApiError context_error(std::string_view prompt, int64_t wanted, int64_t limit) {
    return {.message = fmt::format("the prompt has {} tokens and {} are to be generated, but a "
                                   "request's context is {}; send less or lower max_tokens",
                                   prompt, wanted, limit),
            .code = "context_length_exceeded"};
}

std::string make_id(const char* prefix) {
    return fmt::format("{}{:016x}{:08x}", prefix, random_seed(),
                       static_cast<uint32_t>(random_seed()));
}

int64_t seconds_since_epoch() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// What chat and completions prepare, and run_answer() sends off.
struct Plan {
    std::unique_ptr<AnswerInfo> info;
    std::unique_ptr<AnswerFormat> format{};
    std::function<std::unique_ptr<ChoiceReader>(const ReaderOptions&)> make_reader{};
    TimePoint arrival{};
};

// Text so long that its tokens cannot fit is not tokenised at all.
bool is_hopeless(const ApiContext& context, size_t text_bytes, ApiError& error) {
    const int64_t min_tokens = static_cast<int64_t>(text_bytes) / context.longest_token_bytes;
    if (min_tokens < context.service.max_model_len()) return false;
    error =
        context_error(fmt::format("at least {}", min_tokens), 1, context.service.max_model_len());
    return true;
}

// Fills in the limit where the request names none; refuses what cannot fit.
bool settle_max_tokens(const ApiContext& context, const std::vector<int32_t>& prompt,
                       int32_t& max_tokens, ApiError& error) {
    const int64_t limit = context.service.max_model_len();
    const auto prompt_tokens = static_cast<int64_t>(prompt.size());
    if (prompt_tokens + std::max(max_tokens, 1) > limit) {
        error = context_error(std::to_string(prompt_tokens), std::max(max_tokens, 1), limit);
        return false;
    }
    if (max_tokens > 0) return true;
    const int64_t wanted = context.service.default_max_tokens(static_cast<int32_t>(prompt_tokens));
    max_tokens = static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, limit - prompt_tokens));
    return true;
}

std::set<int32_t> end_ids(const ApiContext& context, const RequestParams& params) {
    const Tokenizer::Markers& markers = context.tokenizer.markers();
    if (params.ignore_eos) return {};
    return {markers.end_of_msg, markers.eos};
}

GenerationRequest make_request(const ApiContext& context, const Plan& plan, int32_t index,
                               uint64_t seed, int32_t max_tokens) {
    const RequestParams& params = plan.info->params;
    const std::set<int32_t> ends = end_ids(context, params);
    GenerationRequest request;
    request.request_id = fmt::format("{}/{}", plan.info->id, index);
    request.prompt = plan.info->prompts[static_cast<size_t>(index / params.num_choices)];
    request.sampling = params.sampling;
    request.sampling.seed = choice_seed(seed, index % params.num_choices);
    request.max_tokens = max_tokens;
    request.min_tokens = params.min_tokens;
    // Ids that the request asks for end it also under ignore_eos, so that flag is not handed on.
    request.stop_ids = params.stop_token_ids;
    request.stop_ids.insert(request.stop_ids.end(), ends.begin(), ends.end());
    request.arrival = plan.arrival;
    return request;
}

Choice make_choice(const ApiContext& context, const Plan& plan, int32_t index) {
    const RequestParams& params = plan.info->params;
    const ReaderOptions options{.stops = &params.stops,
                                .include_stop_text = params.include_stop_text,
                                .keep_logprobs = params.sampling.num_logprobs >= 0};
    const auto& prompt = plan.info->prompts[static_cast<size_t>(index / params.num_choices)];
    return Choice({.index = index,
                   .prompt_tokens = static_cast<int64_t>(prompt.size()),
                   .min_tokens = params.min_tokens,
                   .end_ids = end_ids(context, params),
                   .stop_token_ids = {params.stop_token_ids.begin(), params.stop_token_ids.end()},
                   .include_stop_text = params.include_stop_text,
                   .reader = plan.make_reader(options)});
}

std::shared_ptr<Answer> run_answer(const ApiContext& context, Plan plan,
                                   std::shared_ptr<HttpReply> reply) {
    const RequestParams& params = plan.info->params;
    const auto num_choices = static_cast<int32_t>(plan.info->prompts.size()) * params.num_choices;
    // A full queue would be a reason to try again; this is none.
    if (num_choices > context.service.max_requests()) {
        reply->send(error_response(too_many_choices(plan.info->prompts.size(), params.num_choices,
                                                    context.service.max_requests())));
        return nullptr;
    }
    const uint64_t seed = params.seed ? static_cast<uint64_t>(*params.seed) : random_seed();
    std::vector<Choice> choices;
    std::vector<GenerationRequest> requests;
    for (int32_t index = 0; index < num_choices; ++index) {
        const auto& prompt = plan.info->prompts[static_cast<size_t>(index / params.num_choices)];
        int32_t max_tokens = params.max_tokens;
        ApiError error;
        if (!settle_max_tokens(context, prompt, max_tokens, error)) {
            reply->send(error_response(error));
            return nullptr;
        }
        choices.push_back(make_choice(context, plan, index));
        requests.push_back(make_request(context, plan, index, seed, max_tokens));
    }
    context.metrics
        .histogram("vllm:request_params_n", "Choices that a request asks for.", {1, 2, 5, 10, 20},
                   {{"model_name", context.options.model_name}, {"engine", "0"}})
        .observe(params.num_choices);
    const bool is_kept_alive = params.stream && context.options.sse_keepalive.count() > 0;
    const auto answer =
        std::make_shared<Answer>(Answer::Setup{.info = std::move(plan.info),
                                               .format = std::move(plan.format),
                                               .choices = std::move(choices),
                                               .reply = std::move(reply),
                                               .clock = &context.clock,
                                               .keepalive = context.options.sse_keepalive});
    answer->start(context.service, std::move(requests));
    return is_kept_alive ? answer : nullptr;
}

// Encodes every text prompt. False: `error` says why not.
bool encode_prompts(const ApiContext& context, std::vector<TextPrompt> prompts,
                    std::vector<std::vector<int32_t>>& encoded, ApiError& error) {
    for (TextPrompt& prompt : prompts) {
        if (auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
            encoded.push_back(std::move(*ids));
        } else {
            const auto& text = std::get<std::string>(prompt);
            if (is_hopeless(context, text.size(), error)) return false;
            context.tokenizer.encode(text, encoded.emplace_back());
        }
        if (!encoded.back().empty()) continue;
        error = {
            .message = fmt::format("prompt: number {} has no tokens; a prompt needs at least one",
                                   encoded.size()),
            .param = "prompt"};
        return false;
    }
    return true;
}

size_t text_bytes(const ChatPrompt& prompt) {
    size_t count = prompt.tools_json.size() + prompt.json_schema.size();
    for (const ChatMessage& message : prompt.messages) count += message.content.size();
    return count;
}

}  // namespace

std::shared_ptr<Answer> answer_chat(const ApiContext& context, const HttpRequest& http,
                                    std::shared_ptr<HttpReply> reply) {
    const TimePoint arrival = context.clock.now();
    auto parsed = parse_chat_request(http.body, context.rules());
    ApiError error;
    if (const auto* refused = std::get_if<ApiError>(&parsed)) error = *refused;
    auto* request = std::get_if<ChatRequest>(&parsed);
    if (request == nullptr || is_hopeless(context, text_bytes(request->prompt), error)) {
        reply->send(error_response(error));
        return nullptr;
    }
    auto rendered = render_chat(request->prompt, context.wording, context.tokenizer);
    if (!rendered) {
        reply->send(error_response(to_api_error(rendered.status())));
        return nullptr;
    }
    Plan plan{.info = std::make_unique<AnswerInfo>(), .arrival = arrival};
    *plan.info = {.id = make_id("chatcmpl-"),
                  .model = context.options.model_name,
                  .created = seconds_since_epoch(),
                  .params = std::move(request->params),
                  .prompts = {std::move(rendered).value()},
                  .include_reasoning = request->include_reasoning,
                  .num_earlier_calls = request->num_earlier_calls};
    plan.format = plan.info->params.stream ? make_chat_stream(*plan.info, context.tokenizer)
                                           : make_chat_body(*plan.info, context.tokenizer);
    plan.make_reader = [&context,
                        is_thinking = request->prompt.thinking](const ReaderOptions& options) {
        return make_chat_reader(context.tokenizer, is_thinking, options);
    };
    return run_answer(context, std::move(plan), std::move(reply));
}

std::shared_ptr<Answer> answer_completion(const ApiContext& context, const HttpRequest& http,
                                          std::shared_ptr<HttpReply> reply) {
    const TimePoint arrival = context.clock.now();
    auto parsed = parse_completion_request(http.body, context.rules());
    ApiError error;
    if (const auto* refused = std::get_if<ApiError>(&parsed)) error = *refused;
    auto* request = std::get_if<CompletionRequest>(&parsed);
    std::vector<std::vector<int32_t>> prompts;
    if (request == nullptr ||
        !encode_prompts(context, std::move(request->prompts), prompts, error)) {
        reply->send(error_response(error));
        return nullptr;
    }
    Plan plan{.info = std::make_unique<AnswerInfo>(), .arrival = arrival};
    *plan.info = {.id = make_id("cmpl-"),
                  .model = context.options.model_name,
                  .created = seconds_since_epoch(),
                  .params = std::move(request->params),
                  .prompts = std::move(prompts)};
    plan.format = plan.info->params.stream ? make_text_stream(*plan.info, context.tokenizer)
                                           : make_text_body(*plan.info, context.tokenizer);
    plan.make_reader = [&context,
                        skip = request->skip_special_tokens](const ReaderOptions& options) {
        return make_text_reader(context.tokenizer, skip, options);
    };
    return run_answer(context, std::move(plan), std::move(reply));
}

}  // namespace k3pod

#include "request_params.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <random>

namespace k3pod {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr NumberRange kTemperature{0, 2}, kTopP{0, 1, true}, kMinP{0, 1}, kPenalty{-2, 2},
    kRepetitionPenalty{kMinRepetitionPenalty, 2}, kBias{-100, 100};

void check_model(const JsonFields& fields, const RequestRules& rules) {
    const std::string model = fields.text("model");
    const auto value = fields.find("model");
    if (!value || model == rules.model_name) return;
    value->refusal().refuse(
        {.status = 404,
         .message = fmt::format("the model {} does not exist; this server has '{}'", excerpt(model),
                                rules.model_name),
         .param = "model",
         .code = "model_not_found"});
}

std::map<int32_t, float> read_logit_bias(const JsonFields& fields, int32_t vocab) {
    std::map<int32_t, float> bias;
    const auto value = fields.find("logit_bias");
    if (!value) return bias;
    JsonFields(*value).for_each([&](const std::string& key, const JsonValue& entry) {
        int32_t id = -1;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab) {
            return value->refuse(
                fmt::format("expected keys that are token ids from 0 to {}, found {}", vocab - 1,
                            excerpt(key)));
        }
        bias[id] = entry.number(kBias);
    });
    return bias;
}

SamplingParams read_sampling(const JsonFields& fields, const RequestRules& rules) {
    SamplingParams sampling;
    sampling.temperature = fields.number("temperature", rules.default_temperature, kTemperature);
    sampling.top_p = fields.number("top_p", rules.default_top_p, kTopP);
    sampling.top_k = static_cast<int32_t>(fields.integer("top_k", 0, -1, kMaxInt));
    sampling.min_p = fields.number("min_p", 0, kMinP);
    sampling.presence_penalty = fields.number("presence_penalty", 0, kPenalty);
    sampling.frequency_penalty = fields.number("frequency_penalty", 0, kPenalty);
    sampling.repetition_penalty = fields.number("repetition_penalty", 1, kRepetitionPenalty);
    sampling.logit_bias = read_logit_bias(fields, rules.vocab);
    return sampling;
}

void add_stop(const JsonValue& value, std::vector<std::string>& stops) {
    stops.push_back(value.text());
    if (stops.back().empty() || stops.back().size() > kMaxStopBytes) {
        value.refuse_unless(false, fmt::format("a string of 1 to {} bytes", kMaxStopBytes));
    }
    if (stops.size() > kMaxStops) {
        value.refuse(fmt::format("there may be at most {} stop strings", kMaxStops));
    }
}

std::vector<std::string> read_stops(const JsonFields& fields) {
    std::vector<std::string> stops;
    const auto value = fields.find("stop");
    if (!value) return stops;
    if (value->kind() == JsonKind::kString) {
        add_stop(*value, stops);
    } else if (value->kind() == JsonKind::kArray) {
        value->items([&](const JsonValue& item) { add_stop(item, stops); });
    } else {
        value->refuse_unless(false, "a string or an array of strings");
    }
    return stops;
}

void read_stream_options(const JsonFields& fields, RequestParams& params) {
    const auto value = fields.find("stream_options");
    if (!value) return;
    if (!params.stream) return value->refuse("is only allowed together with \"stream\": true");
    const JsonFields options(*value);
    params.include_usage = options.boolean("include_usage", false);
    params.continuous_usage = options.boolean("continuous_usage_stats", false);
    params.include_internal_content = options.boolean("include_internal_content", false);
}

}  // namespace

ApiError too_many_choices(size_t num_prompts, int32_t num_choices, int64_t limit) {
    const std::string asked =
        num_prompts == 1
            ? fmt::format("{} choices are asked for", num_choices)
            : fmt::format("{} prompts with {} choices each are {} choices", num_prompts,
                          num_choices, static_cast<int64_t>(num_prompts) * num_choices);
    return {.message = fmt::format("n: {}, but one request may have {} here; lower n{}", asked,
                                   limit, num_prompts == 1 ? "" : " or send fewer prompts"),
            .param = "n"};
}

void read_max_tokens(const JsonFields& fields, std::initializer_list<const char*> names,
                     int32_t fallback, RequestParams& params) {
    params.max_tokens = 0;
    for (const char* name : names) {
        const auto limit = static_cast<int32_t>(fields.integer(name, 0, 1, kMaxInt));
        if (params.max_tokens == 0) params.max_tokens = limit;
    }
    if (params.max_tokens == 0) params.max_tokens = fallback;
    const auto min_tokens = fields.find("min_tokens");
    if (min_tokens && params.max_tokens > 0 && params.min_tokens > params.max_tokens) {
        min_tokens->refuse(fmt::format("{} is more than the limit of {} tokens", params.min_tokens,
                                       params.max_tokens));
    }
}

RequestParams read_params(const JsonFields& fields, const RequestRules& rules) {
    check_model(fields, rules);
    RequestParams params;
    params.sampling = read_sampling(fields, rules);
    if (const auto seed = fields.find("seed")) {
        params.seed =
            seed->integer(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
    }
    params.num_choices = static_cast<int32_t>(fields.integer("n", 1, 1, kMaxChoices));
    params.min_tokens = static_cast<int32_t>(fields.integer("min_tokens", 0, 0, kMaxInt));
    params.ignore_eos = fields.boolean("ignore_eos", false);
    params.stops = read_stops(fields);
    if (const auto ids = fields.find("stop_token_ids"))
        params.stop_token_ids = ids->ids(rules.vocab);
    params.include_stop_text = fields.boolean("include_stop_str_in_output", false);
    params.stream = fields.boolean("stream", false);
    read_stream_options(fields, params);
    params.return_token_ids = fields.boolean("return_token_ids", false);
    fields.refuse_if_present("prompt_logprobs", "is not supported; leave it out");
    return params;
}

uint64_t random_seed() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

uint64_t choice_seed(uint64_t seed, int32_t choice) {
    if (choice == 0) return seed;
    // SplitMix64's finaliser over a step that is odd, hence different for every choice.
    uint64_t z = seed + static_cast<uint64_t>(choice) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

}  // namespace k3pod

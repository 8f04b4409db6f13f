// Text completions, whole and streamed.

#include <gmock/gmock.h>

#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;
using Completion = ApiTest;

const Json& choice_of(const Json& body, size_t index = 0) {
    return body.at("choices").at(index);
}

Ids with_end(const std::string& words) {
    return encode_tiny(words) + Ids{tiny_tokenizer().markers().eos};
}

TEST_F(Completion, answers_a_text_prompt) {
    service.scripts = {with_end(" world")};
    const auto reply = complete({{"prompt", "Hello"}, {"max_tokens", 20}});
    const Json body = reply->json();
    EXPECT_EQ(body.at("object"), "text_completion");
    EXPECT_THAT(body.at("id").get<std::string>(), ::testing::MatchesRegex("cmpl-[0-9a-f]{24}"));
    EXPECT_EQ(choice_of(body).at("text"), " world");
    EXPECT_EQ(choice_of(body).at("finish_reason"), "stop");
    EXPECT_TRUE(choice_of(body).at("logprobs").is_null());
    EXPECT_EQ(service.submitted(0).request.prompt, text("Hello"));
    EXPECT_EQ(service.submitted(0).request.max_tokens, 20);
    EXPECT_EQ(body.at("usage").at("prompt_tokens"), text("Hello").size());
}

TEST_F(Completion, takes_sixteen_tokens_when_no_limit_is_named) {
    service.scripts = {Ids(100, text("a")[0])};
    const Json body = complete()->json();
    EXPECT_EQ(body.at("usage").at("completion_tokens"), 16);
    EXPECT_EQ(choice_of(body).at("finish_reason"), "length");
}

TEST_F(Completion, takes_ids_and_lists_of_prompts) {
    service.scripts = {with_end("x")};
    complete({{"prompt", {5, 6, 2049}}});
    EXPECT_EQ(service.submitted(0).request.prompt, (Ids{5, 6, 2049}));
    complete({{"prompt", {"one", "two"}}});
    EXPECT_EQ(service.submitted(1).request.prompt, text("one"));
    EXPECT_EQ(service.submitted(2).request.prompt, text("two"));
    complete({{"prompt", {{5}, {6, 7}}}});
    EXPECT_EQ(service.submitted(3).request.prompt, (Ids{5}));
    EXPECT_EQ(service.submitted(4).request.prompt, (Ids{6, 7}));
}

TEST_F(Completion, numbers_choices_over_prompts_and_n_and_counts_each_prompt_once) {
    service.scripts = {with_end("a"), with_end("b"), with_end("c"), with_end("d")};
    const Json body = complete({{"prompt", {{5}, {6, 7}}}, {"n", 2}, {"seed", 3}})->json();
    ASSERT_EQ(body.at("choices").size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(choice_of(body, i).at("index"), i);
    EXPECT_EQ(choice_of(body, 3).at("text"), "d");
    EXPECT_EQ(body.at("usage").at("prompt_tokens"), 3);
    // The second prompt draws as it would alone.
    EXPECT_EQ(service.submitted(0).request.sampling.seed,
              service.submitted(2).request.sampling.seed);
    EXPECT_NE(service.submitted(0).request.sampling.seed,
              service.submitted(1).request.sampling.seed);
}

TEST_F(Completion, refuses_prompts_of_other_kinds) {
    const std::vector<std::pair<Json, std::string>> cases = {
        {nullptr, "prompt"},       {5, "prompt"},
        {Json::array(), "prompt"}, {"", "prompt"},
        {{"a", 5}, "prompt[1]"},   {{5, "a"}, "prompt"},
        {{{5}, "a"}, "prompt[1]"}, {{-1}, "prompt"},
        {{2304}, "prompt"},        {{{5}, {2304}}, "prompt[1]"},
        {{1.5}, "prompt"},         {{{5}, Json::array()}, "prompt"},
        {{true}, "prompt"},        {Json::object(), "prompt"}};
    for (const auto& [prompt, param] : cases) {
        const auto reply = complete({{"prompt", prompt}});
        EXPECT_EQ(reply->response.status, 400) << prompt;
        EXPECT_EQ(reply->json().at("error").at("param"), param) << prompt;
    }
    EXPECT_EQ(service.num_submitted(), 0u);
}

TEST_F(Completion, refuses_what_it_cannot_do) {
    const std::vector<std::pair<Json, std::string>> cases = {
        {{{"echo", true}}, "echo"},         {{{"suffix", "x"}}, "suffix"},
        {{{"best_of", 3}}, "best_of"},      {{{"logprobs", 21}}, "logprobs"},
        {{{"logprobs", true}}, "logprobs"}, {{{"n", 100}, {"prompt", {"a", "b"}}}, "n"}};
    for (const auto& [fields, param] : cases) {
        const auto reply = complete(fields);
        EXPECT_EQ(reply->response.status, 400) << fields;
        EXPECT_EQ(reply->json().at("error").at("param"), param) << fields;
    }
    service.scripts = {with_end("x")};
    EXPECT_EQ(
        complete({{"echo", false}, {"suffix", ""}, {"best_of", 2}, {"n", 2}})->response.status,
        200);
}

TEST_F(Completion, has_logprobs_in_parallel_lists) {
    service.scripts = {encode_tiny("ab cd") + Ids{tiny_tokenizer().markers().eos}};
    const Json logprobs = choice_of(complete({{"logprobs", 2}})->json()).at("logprobs");
    const size_t count = service.scripts[0].size();
    std::string tokens;
    for (size_t i = 0; i < count; ++i) {
        if (i + 1 < count) {
            EXPECT_EQ(logprobs.at("text_offset").at(i), tokens.size());
            tokens += logprobs.at("tokens").at(i);
        }
        EXPECT_FLOAT_EQ(logprobs.at("token_logprobs").at(i).get<float>(), -0.5f);
        EXPECT_GE(logprobs.at("top_logprobs").at(i).size(), 1u);
    }
    EXPECT_EQ(tokens, "ab cd");
    const Json bare = choice_of(complete({{"logprobs", 0}})->json()).at("logprobs");
    EXPECT_EQ(bare.at("tokens").size(), count);
    EXPECT_TRUE(bare.at("top_logprobs").is_null());
}

TEST_F(Completion, streams_text_and_ends_with_a_reason) {
    service.scripts = {with_end("日本 🎉 END of it")};
    const auto reply = complete({{"stream", true},
                                 {"stop", "END"},
                                 {"max_tokens", 90},
                                 {"stream_options", {{"include_usage", true}}}});
    EXPECT_EQ(reply->response.content_type, "text/event-stream");
    EXPECT_TRUE(reply->response.body.ends_with("data: [DONE]\n\n"));
    std::string words;
    const auto events = reply->events();
    for (size_t i = 0; i + 1 < events.size(); ++i) {
        EXPECT_EQ(events[i].at("object"), "text_completion");
        words += choice_of(events[i]).at("text");
        EXPECT_EQ(choice_of(events[i]).at("finish_reason").is_null(), i + 2 < events.size());
    }
    EXPECT_EQ(words, "日本 🎉 ");
    EXPECT_EQ(events.back().at("choices"), Json::array());
    EXPECT_GT(events.back().at("usage").at("completion_tokens"), 3);
}

TEST_F(Completion, returns_token_ids_whole_and_streamed) {
    service.scripts = {with_end("a b")};
    const Json body = complete({{"prompt", {5, 6}}, {"return_token_ids", true}})->json();
    EXPECT_EQ(choice_of(body).at("prompt_token_ids").get<Ids>(), (Ids{5, 6}));
    EXPECT_EQ(choice_of(body).at("token_ids").get<Ids>(), service.scripts[0]);
    Ids ids;
    const auto events =
        complete({{"prompt", {5, 6}}, {"return_token_ids", true}, {"stream", true}})->events();
    EXPECT_EQ(choice_of(events[0]).at("prompt_token_ids").get<Ids>(), (Ids{5, 6}));
    for (size_t i = 1; i < events.size(); ++i) {
        for (const Json& id : choice_of(events[i]).at("token_ids")) ids.push_back(id);
    }
    EXPECT_EQ(ids, service.scripts[0]);
}

TEST_F(Completion, shows_control_ids_only_when_told_not_to_skip_them) {
    const auto& markers = tiny_tokenizer().markers();
    service.scripts = {text("a") + Ids{markers.end_of_msg} + text("b")};
    Json fields = {{"ignore_eos", true}, {"max_tokens", 3}};
    EXPECT_EQ(choice_of(complete(fields)->json()).at("text"), "ab");
    fields["skip_special_tokens"] = false;
    EXPECT_EQ(choice_of(complete(fields)->json()).at("text"), "a<|end_of_msg|>b");
}

}  // namespace
}  // namespace k3pod::testing

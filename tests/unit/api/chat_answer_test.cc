// Whole chat answers: channels, calls, stops, logprobs, choices.

#include <gmock/gmock.h>

#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;
using ChatAnswer = ApiTest;

Json message_of(const Json& body, size_t index = 0) {
    return body.at("choices").at(index).at("message");
}

TEST_F(ChatAnswer, has_reasoning_content_usage_and_ids) {
    const Ids ids = say("so 4", "2 + 2 = 4.");
    service.scripts = {ids};
    const auto reply = chat({{"model", "k3-tiny"}});
    const Json body = reply->json();
    EXPECT_EQ(reply->response.status, 200);
    EXPECT_EQ(reply->response.content_type, "application/json");
    EXPECT_EQ(body.at("object"), "chat.completion");
    EXPECT_EQ(body.at("model"), "k3-tiny");
    EXPECT_THAT(body.at("id").get<std::string>(), ::testing::MatchesRegex("chatcmpl-[0-9a-f]{24}"));
    EXPECT_TRUE(body.at("created").is_number_integer());
    const Json choice = body.at("choices").at(0);
    EXPECT_EQ(choice.at("index"), 0);
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    EXPECT_TRUE(choice.at("logprobs").is_null());
    EXPECT_EQ(
        choice.at("message"),
        (Json{{"role", "assistant"}, {"content", "2 + 2 = 4."}, {"reasoning_content", "so 4"}}));
    const Json usage = body.at("usage");
    const size_t prompt_tokens = service.submitted(0).request.prompt.size();
    EXPECT_EQ(usage.at("prompt_tokens"), prompt_tokens);
    EXPECT_EQ(usage.at("completion_tokens"), ids.size());
    EXPECT_EQ(usage.at("total_tokens"), prompt_tokens + ids.size());
    EXPECT_EQ(usage.at("completion_tokens_details").at("reasoning_tokens"), num_reasoning("so 4"));
    EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 0);
    EXPECT_EQ(reply->header("X-Msh-Usage-Prompt-Tokens"), std::to_string(prompt_tokens));
    EXPECT_EQ(reply->header("X-Msh-Usage-Cached-Tokens"), "0");
    EXPECT_EQ(reply->header("X-Request-Id"), body.at("id"));
}

TEST_F(ChatAnswer, leaves_reasoning_out_when_asked) {
    service.scripts = {say("so 4", "4")};
    const Json body = chat({{"include_reasoning", false}})->json();
    EXPECT_EQ(message_of(body), (Json{{"role", "assistant"}, {"content", "4"}}));
    EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens"),
              num_reasoning("so 4"));
}

TEST_F(ChatAnswer, has_tool_calls) {
    service.scripts = {say(
        "call", "", {{"get_weather", {{"city", "Oslo \"N\""}}}, {"get_time", {{"city", "Rome"}}}})};
    const Json choice = chat()->json().at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    const Json message = choice.at("message");
    EXPECT_TRUE(message.at("content").is_null());
    ASSERT_EQ(message.at("tool_calls").size(), 2u);
    const Json first = message.at("tool_calls").at(0);
    EXPECT_EQ(first.at("id"), "get_weather_0");
    EXPECT_EQ(first.at("type"), "function");
    EXPECT_EQ(first.at("function").at("name"), "get_weather");
    EXPECT_EQ(Json::parse(first.at("function").at("arguments").get<std::string>()),
              (Json{{"city", "Oslo \"N\""}}));
    EXPECT_EQ(message.at("tool_calls").at(1).at("id"), "get_time_1");
}

TEST_F(ChatAnswer, numbers_calls_on_from_the_history) {
    service.scripts = {say("", "", {{"f", {}}})};
    const Json call = {{"id", "f_0"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
    const Json body = chat({{"messages",
                             {{{"role", "user"}, {"content", "x"}},
                              {{"role", "assistant"}, {"tool_calls", {call}}},
                              {{"role", "tool"}, {"tool_call_id", "f_0"}}}}})
                          ->json();
    EXPECT_EQ(message_of(body).at("tool_calls").at(0).at("id"), "f_1");
}

TEST_F(ChatAnswer, says_length_when_the_limit_cut_it_and_keeps_half_a_call) {
    service.scripts = {say("", "", {{"get_weather", {{"city", "Oslo"}}}})};
    const size_t limit = service.scripts[0].size() - 14;
    const Json choice = chat({{"max_tokens", limit}})->json().at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "length");
    const Json call = choice.at("message").at("tool_calls").at(0);
    EXPECT_EQ(call.at("function").at("name"), "get_weather");
    EXPECT_THAT(call.at("function").at("arguments").get<std::string>(), ::testing::StartsWith("{"));
}

// ---- stops ----

TEST_F(ChatAnswer, cuts_before_a_stop_string_over_several_tokens) {
    service.scripts = {say("", "alpha END omega")};
    ASSERT_GE(text(" END").size(), 2u);
    const Json choice = chat({{"stop", "END"}})->json().at("choices").at(0);
    EXPECT_EQ(choice.at("message").at("content"), "alpha ");
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    EXPECT_EQ(choice.at("stop_reason"), "END");
}

TEST_F(ChatAnswer, ends_generation_at_the_stop_string) {
    service.scripts = {say("", "one two three four five six seven eight")};
    const size_t all = service.scripts[0].size();
    const Json body = chat({{"stop", {"zzz", "three"}}})->json();
    EXPECT_EQ(message_of(body).at("content"), "one two ");
    EXPECT_LT(body.at("usage").at("completion_tokens"), all - 5);
}

TEST_F(ChatAnswer, shows_the_stop_string_when_asked) {
    service.scripts = {say("", "alpha END omega")};
    EXPECT_EQ(message_of(chat({{"stop", "END"}, {"include_stop_str_in_output", true}})->json())
                  .at("content"),
              "alpha END");
}

TEST_F(ChatAnswer, releases_what_only_looked_like_a_stop_string) {
    service.scripts = {say("EN", "a EN b ENX c EN")};
    const Json message = message_of(chat({{"stop", "END"}})->json());
    EXPECT_EQ(message.at("content"), "a EN b ENX c EN");
    EXPECT_EQ(message.at("reasoning_content"), "EN");
}

TEST_F(ChatAnswer, stop_strings_never_cross_from_reasoning_to_content) {
    service.scripts = {say("first EN", "D last")};
    const Json message = message_of(chat({{"stop", "END"}})->json());
    EXPECT_EQ(message.at("reasoning_content"), "first EN");
    EXPECT_EQ(message.at("content"), "D last");
}

TEST_F(ChatAnswer, stops_inside_reasoning) {
    service.scripts = {say("first END second", "never")};
    const Json message = message_of(chat({{"stop", "END"}})->json());
    EXPECT_EQ(message.at("reasoning_content"), "first ");
    EXPECT_EQ(message.at("content"), "");
}

TEST_F(ChatAnswer, stop_strings_leave_arguments_whole) {
    service.scripts = {say("", "", {{"f", {{"text", "go STOP on"}}}})};
    const Json choice = chat({{"stop", "STOP"}})->json().at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    EXPECT_THAT(choice.at("message").dump(), HasSubstr("go STOP on"));
}

TEST_F(ChatAnswer, never_shows_markers_with_stop_words_set) {
    for (const char* stop : {"|>", "sep", "<|", "close", "p|>", "think", "response"}) {
        service.scripts = {say("mmm", "nnn", {{"f", {{"a", "b"}}}})};
        const std::string body = chat({{"stop", stop}})->response.body;
        EXPECT_EQ(body.find("<|"), std::string::npos) << stop;
        EXPECT_EQ(message_of(Json::parse(body)).at("content"), "nnn") << stop;
    }
}

TEST_F(ChatAnswer, stop_strings_count_only_behind_min_tokens) {
    service.scripts = {say("", "x x x x x x")};
    const size_t min_tokens = begin_saying("", "x x x").size();
    const Json body = chat({{"stop", " x"}, {"min_tokens", min_tokens}})->json();
    EXPECT_EQ(message_of(body).at("content"), "x x x");
    EXPECT_GT(body.at("usage").at("completion_tokens"), min_tokens);
}

TEST_F(ChatAnswer, hands_stop_ids_to_the_engine_and_hides_the_one_that_came) {
    const int32_t stop_id = text("7")[0];
    service.scripts = {say("", "5 6 7 8")};
    const Json choice = chat({{"stop_token_ids", {stop_id}}})->json().at("choices").at(0);
    EXPECT_THAT(service.submitted(0).request.stop_ids, ::testing::Contains(stop_id));
    EXPECT_EQ(choice.at("message").at("content").get<std::string>().find('7'), std::string::npos);
    EXPECT_EQ(choice.at("stop_reason"), stop_id);
}

TEST_F(ChatAnswer, ends_at_both_of_the_models_end_ids_unless_told_to_ignore_them) {
    const auto& markers = tiny_tokenizer().markers();
    service.scripts = {say("", "ok")};
    chat();
    EXPECT_THAT(service.submitted(0).request.stop_ids,
                ::testing::UnorderedElementsAre(markers.end_of_msg, markers.eos));
    service.scripts = {say("", "ok") + text("more") + Ids{markers.end_of_msg}};
    const Json body = chat({{"ignore_eos", true}, {"max_tokens", 300}})->json();
    EXPECT_TRUE(service.submitted(1).request.stop_ids.empty());
    EXPECT_EQ(body.dump().find("<|"), std::string::npos);
}

// ---- several choices ----

TEST_F(ChatAnswer, gives_n_choices_with_seeds_of_their_own) {
    service.scripts = {say("", "one"), say("", "two", {{"f", {}}}), say("", "three")};
    const Json body = chat({{"n", 3}, {"seed", 42}})->json();
    ASSERT_EQ(body.at("choices").size(), 3u);
    EXPECT_EQ(message_of(body, 0).at("content"), "one");
    EXPECT_EQ(message_of(body, 1).at("content"), "two");
    EXPECT_EQ(message_of(body, 2).at("content"), "three");
    EXPECT_EQ(body.at("choices").at(1).at("finish_reason"), "tool_calls");
    EXPECT_EQ(body.at("choices").at(2).at("finish_reason"), "stop");
    EXPECT_EQ(service.submitted(0).request.sampling.seed, 42u);
    EXPECT_NE(service.submitted(1).request.sampling.seed, 42u);
    EXPECT_NE(service.submitted(1).request.sampling.seed,
              service.submitted(2).request.sampling.seed);
    size_t total = 0;
    for (const Ids& script : service.scripts) total += script.size();
    EXPECT_EQ(body.at("usage").at("completion_tokens"), total);
    EXPECT_EQ(body.at("usage").at("prompt_tokens"), service.submitted(0).request.prompt.size());
}

TEST_F(ChatAnswer, orders_choices_by_index_whichever_ends_first) {
    service.scripts.clear();
    const auto reply = chat({{"n", 2}});
    ScriptedService::play(service.submitted(1), say("", "second"));
    EXPECT_FALSE(reply->is_complete);
    ScriptedService::play(service.submitted(0), say("", "first"));
    ASSERT_TRUE(reply->is_complete);
    EXPECT_EQ(message_of(reply->json(), 0).at("content"), "first");
    EXPECT_EQ(message_of(reply->json(), 1).at("content"), "second");
}

// ---- logprobs and ids ----

TEST_F(ChatAnswer, logprobs_bytes_join_to_the_content) {
    service.scripts = {say("hidden 日", "日本語 🎉 ok")};
    const Json choice = chat({{"logprobs", true}, {"top_logprobs", 3}})->json().at("choices").at(0);
    std::string bytes;
    for (const Json& entry : choice.at("logprobs").at("content")) {
        for (const Json& byte : entry.at("bytes")) bytes += static_cast<char>(byte.get<int>());
        EXPECT_EQ(entry.at("top_logprobs").size(), 3u);
        EXPECT_FLOAT_EQ(entry.at("logprob").get<float>(), -0.5f);
        EXPECT_FLOAT_EQ(entry.at("top_logprobs").at(1).at("logprob").get<float>(), -1.5f);
        EXPECT_TRUE(entry.at("top_logprobs").at(2).at("bytes").is_array());
    }
    EXPECT_EQ(bytes, "日本語 🎉 ok");
    EXPECT_EQ(choice.at("message").at("content"), "日本語 🎉 ok");
}

TEST_F(ChatAnswer, logprobs_without_alternatives_and_of_cut_text) {
    service.scripts = {say("", "alpha END omega")};
    const Json choice = chat({{"logprobs", true}, {"stop", "END"}})->json().at("choices").at(0);
    std::string tokens;
    for (const Json& entry : choice.at("logprobs").at("content")) {
        tokens += entry.at("token");
        EXPECT_TRUE(entry.at("top_logprobs").empty());
    }
    EXPECT_THAT(tokens, ::testing::StartsWith("alpha "));
    EXPECT_EQ(tokens.find("omega"), std::string::npos);
}

TEST_F(ChatAnswer, minus_infinity_is_a_number_in_json) {
    const auto reply = chat({{"logprobs", true}});
    const auto submitted = service.submitted(0);
    for (const int32_t id : say("", "a")) {
        SampledToken token = sampled(id, 0);
        token.logprob.logprob = -std::numeric_limits<float>::infinity();
        submitted.sink->on_token(token);
    }
    submitted.sink->on_finish(FinishReason::kStop, Status::ok());
    const Json entry = reply->json().at("choices").at(0).at("logprobs").at("content").at(0);
    EXPECT_EQ(entry.at("logprob"), -9999.0);
}

TEST_F(ChatAnswer, returns_token_ids_when_asked) {
    service.scripts = {say("so", "4")};
    const Json body = chat({{"return_token_ids", true}})->json();
    EXPECT_EQ(body.at("prompt_token_ids").get<Ids>(), service.submitted(0).request.prompt);
    EXPECT_EQ(body.at("choices").at(0).at("token_ids").get<Ids>(), service.scripts[0]);
    EXPECT_FALSE(chat()->json().contains("prompt_token_ids"));
}

TEST_F(ChatAnswer, bytes_that_never_complete_become_replacement_marks) {
    const Ids party = text("🎉");
    ASSERT_GE(party.size(), 2u);
    const Ids cut = begin_saying("", "a") + Ids(party.begin(), party.end() - 1);
    service.scripts = {cut};
    const Json choice = chat({{"max_tokens", cut.size()}})->json().at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_EQ(choice.at("message").at("content"), "a\xEF\xBF\xBD");
}

// ---- errors of the engine ----

TEST_F(ChatAnswer, maps_refusals_of_the_engine) {
    const std::vector<std::pair<Status, int>> cases = {
        {resource_exhausted("the queue is full (256 requests)"), 429},
        {unavailable("spark-3 is gone"), 503},
        {invalid_argument("prompt + max_tokens is 9000, the pool has 4096"), 400},
        {deadline_exceeded("spark-3 did not answer within 1 s"), 504},
        {internal_error("logits are not finite"), 500}};
    for (const auto& [refusal, status] : cases) {
        service.refusal = refusal;
        const auto reply = chat();
        EXPECT_EQ(reply->response.status, status);
        EXPECT_EQ(reply->json().at("error").at("message"), refusal.message());
        EXPECT_EQ(reply->header("Retry-After").empty(), status != 429 && status != 503);
    }
}

TEST_F(ChatAnswer, more_choices_than_ever_fit_are_a_400) {
    service.capacity = 3;
    const auto reply = chat({{"n", 4}});
    EXPECT_EQ(reply->response.status, 400);
    EXPECT_EQ(reply->json().at("error").at("param"), "n");
    EXPECT_THAT(reply->json().at("error").at("message").get<std::string>(),
                HasSubstr("n: 4 choices are asked for, but one request may have 3 here; lower n"));
    EXPECT_EQ(service.num_submitted(), 0u);
    EXPECT_EQ(chat({{"n", 3}})->response.status, 0);
}

TEST_F(ChatAnswer, cancels_the_choices_that_were_taken_when_one_is_refused) {
    service.refusal = resource_exhausted("the queue is full (2 requests)");
    service.refuse_from = 2;
    const auto reply = chat({{"n", 3}});
    EXPECT_EQ(reply->response.status, 429);
    EXPECT_TRUE(service.is_cancelled(service.submitted(0).handle));
    EXPECT_TRUE(service.is_cancelled(service.submitted(1).handle));
}

TEST_F(ChatAnswer, an_error_in_the_middle_is_never_a_200) {
    const auto reply = chat({{"n", 2}});
    ScriptedService::play(service.submitted(0), say("", "fine"));
    service.submitted(1).sink->on_token(sampled(5));
    service.submitted(1).sink->on_finish(FinishReason::kError, unavailable("spark-3 is gone"));
    EXPECT_EQ(reply->response.status, 503);
    EXPECT_EQ(reply->json().at("error").at("message"), "spark-3 is gone");
}

}  // namespace
}  // namespace k3pod::testing

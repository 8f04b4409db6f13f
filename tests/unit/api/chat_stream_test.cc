// Streamed chat answers, by the rules that Kimi's vendor checks and OpenAI's clients apply.

#include <gmock/gmock.h>

#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;

class ChatStream : public ApiTest {
  protected:
    std::shared_ptr<CapturedReply> stream(Json fields = Json::object()) {
        fields["stream"] = true;
        return chat(std::move(fields));
    }
    static const Json& only_choice(const Json& event) { return event.at("choices").at(0); }
    static const Json& delta(const Json& event) { return only_choice(event).at("delta"); }
};

TEST_F(ChatStream, has_the_form_that_clients_expect) {
    service.scripts = {say("so 4", "It is 4.")};
    const auto reply = stream();
    EXPECT_EQ(reply->response.status, 200);
    EXPECT_EQ(reply->response.content_type, "text/event-stream");
    EXPECT_EQ(reply->header("Cache-Control"), "no-cache");
    EXPECT_TRUE(reply->response.body.ends_with("data: [DONE]\n\n"));
    EXPECT_TRUE(reply->is_complete);
    const std::vector<Json> events = reply->events();
    for (const Json& event : events) {
        EXPECT_EQ(event.at("object"), "chat.completion.chunk");
        EXPECT_EQ(event.at("id"), events[0].at("id"));
        EXPECT_EQ(event.at("created"), events[0].at("created"));
        EXPECT_EQ(event.at("model"), "k3-tiny");
        ASSERT_EQ(event.at("choices").size(), 1u);
        EXPECT_TRUE(only_choice(event).contains("finish_reason"));
        EXPECT_EQ(only_choice(event).at("index"), 0);
        for (const auto& [key, value] : delta(event).items()) EXPECT_FALSE(value.is_null()) << key;
        EXPECT_FALSE(event.contains("usage"));
    }
    EXPECT_EQ(delta(events[0]), (Json{{"role", "assistant"}, {"content", ""}}));
    EXPECT_TRUE(only_choice(events[0]).at("finish_reason").is_null());
    EXPECT_EQ(joined(events, "reasoning_content"), "so 4");
    EXPECT_EQ(joined(events, "content"), "It is 4.");
    const Json last = only_choice(events.back());
    EXPECT_EQ(last.at("delta"), Json::object());
    EXPECT_EQ(last.at("finish_reason"), "stop");
}

TEST_F(ChatStream, marks_the_end_of_thinking_once_before_any_content) {
    service.scripts = {say("so 4", "It is 4.")};
    const std::vector<Json> events = stream()->events();
    int num_ends = 0;
    bool has_content = false;
    for (size_t i = 1; i < events.size(); ++i) {
        has_content |= delta(events[i]).contains("content");
        if (!delta(events[i]).contains("reasoning_content")) continue;
        EXPECT_FALSE(has_content);
        if (delta(events[i]).at("reasoning_content") == "") ++num_ends;
    }
    EXPECT_EQ(num_ends, 1);
}

TEST_F(ChatStream, end_chunk_carries_the_usage_of_its_choice) {
    service.scripts = {say("so 4", "It is 4.")};
    const std::vector<Json> events = stream()->events();
    const Json usage = only_choice(events.back()).at("usage");
    EXPECT_EQ(usage.at("prompt_tokens"), service.submitted(0).request.prompt.size());
    EXPECT_EQ(usage.at("completion_tokens"), service.scripts[0].size());
    EXPECT_EQ(usage.at("completion_tokens_details").at("reasoning_tokens"), num_reasoning("so 4"));
    EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 0);
}

TEST_F(ChatStream, sends_usage_exactly_when_asked) {
    struct Case {
        Json options;
        bool at_end, on_every_chunk;
    };
    const Case cases[] = {
        {nullptr, false, false},
        {Json::object(), false, false},
        {{{"include_usage", false}}, false, false},
        {{{"include_usage", true}}, true, false},
        {{{"include_usage", true}, {"continuous_usage_stats", true}}, true, true}};
    for (const Case& c : cases) {
        service.scripts = {say("so 4", "It is 4.")};
        std::vector<Json> events = stream({{"stream_options", c.options}})->events();
        if (c.at_end) {
            EXPECT_EQ(events.back().at("choices"), Json::array());
            EXPECT_EQ(events.back().at("usage").at("completion_tokens"), service.scripts[0].size());
            events.pop_back();
        }
        for (const Json& event : events) {
            EXPECT_EQ(event.at("choices").size(), 1u);
            EXPECT_EQ(event.contains("usage"), c.on_every_chunk) << c.options << event;
        }
    }
}

TEST_F(ChatStream, continuous_usage_counts_reasoning_up_to_the_boundary) {
    service.scripts = {say("so it is four", "It is 4.")};
    const auto events =
        stream({{"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}})
            ->events();
    int64_t before = 0;
    for (const Json& event : events) {
        const int64_t now =
            event.at("usage").at("completion_tokens_details").at("reasoning_tokens");
        EXPECT_GE(now, before);
        if (before == static_cast<int64_t>(num_reasoning("so it is four"))) {
            EXPECT_EQ(now, before);
        }
        before = now;
    }
    EXPECT_EQ(before, num_reasoning("so it is four"));
}

TEST_F(ChatStream, announces_a_call_and_then_streams_its_arguments) {
    service.scripts = {
        say("", "One moment.",
            {{"get_weather", {{"city", "Oslo \"N\""}}}, {"get_time", {{"city", "Rome"}}}})};
    const std::vector<Json> events = stream()->events();
    EXPECT_EQ(joined(events, "content"), "One moment.");
    std::vector<std::string> arguments;
    for (const Json& event : events) {
        if (!delta(event).contains("tool_calls")) continue;
        EXPECT_EQ(delta(event).size(), 1u);
        ASSERT_EQ(delta(event).at("tool_calls").size(), 1u);
        const Json call = delta(event).at("tool_calls").at(0);
        if (call.contains("id")) {
            EXPECT_EQ(call.at("index"), arguments.size());
            EXPECT_EQ(call.at("type"), "function");
            EXPECT_EQ(call.at("function").at("arguments"), "");
            EXPECT_EQ(call.at("id"), call.at("function").at("name").get<std::string>() + "_" +
                                         std::to_string(arguments.size()));
            arguments.emplace_back();
        } else {
            EXPECT_EQ(call.size(), 2u);
            EXPECT_EQ(call.at("index"), arguments.size() - 1);
            EXPECT_EQ(call.at("function").size(), 1u);
            arguments.back() += call.at("function").at("arguments");
        }
    }
    ASSERT_EQ(arguments.size(), 2u);
    EXPECT_EQ(Json::parse(arguments[0]), (Json{{"city", "Oslo \"N\""}}));
    EXPECT_EQ(Json::parse(arguments[1]), (Json{{"city", "Rome"}}));
    EXPECT_EQ(only_choice(events.back()).at("finish_reason"), "tool_calls");
}

TEST_F(ChatStream, gives_the_same_text_as_the_whole_answer) {
    for (const char* words : {"日本語 🎉 👩‍👩‍👧 zebra", "a EN b ENX c EN",
                              "\n\n  spaced\t", "𠮷野家"}) {
        service.scripts = {say(words, words, {{"f", {{"text", words}}}})};
        const Json whole = chat({{"stop", "END"}})->json().at("choices").at(0).at("message");
        const auto events = stream({{"stop", "END"}})->events();
        EXPECT_EQ(joined(events, "content"), whole.at("content"));
        EXPECT_EQ(joined(events, "reasoning_content"), whole.at("reasoning_content"));
        EXPECT_EQ(whole.at("content"), words);
    }
}

TEST_F(ChatStream, never_sends_a_part_of_a_character) {
    ASSERT_GE(text("🎉").size(), 2u);
    service.scripts = {say("🎉", "a🎉b")};
    const auto reply = stream();
    EXPECT_EQ(reply->response.body.find("\xEF\xBF\xBD"), std::string::npos);
    EXPECT_EQ(joined(reply->events(), "content"), "a🎉b");
}

TEST_F(ChatStream, shows_nothing_of_a_stop_string) {
    service.scripts = {say("", "alpha END omega")};
    const auto reply = stream({{"stop", "END"}});
    EXPECT_EQ(joined(reply->events(), "content"), "alpha ");
    EXPECT_EQ(only_choice(reply->events().back()).at("stop_reason"), "END");
    EXPECT_EQ(reply->response.body.find("omega"), std::string::npos);
}

TEST_F(ChatStream, holds_text_back_only_as_long_as_it_may_be_a_stop_string) {
    const auto reply = stream({{"stop", "END"}});
    const auto submitted = service.submitted(0);
    const auto feed = [&](const Ids& ids) {
        for (const int32_t id : ids) submitted.sink->on_token(sampled(id));
    };
    feed(begin_saying("", ""));
    feed(text("go E"));
    EXPECT_EQ(joined(reply->events(), "content"), "go ");
    feed(text("N"));
    EXPECT_EQ(joined(reply->events(), "content"), "go ");
    feed(text("A"));
    EXPECT_EQ(joined(reply->events(), "content"), "go ENA");
}

TEST_F(ChatStream, n_choices_have_their_own_role_chunk_end_and_usage) {
    service.scripts = {say("a", "one"), say("b", "two", {{"f", {}}}), say("c", "three")};
    const auto events = stream({{"n", 3}, {"stream_options", {{"include_usage", true}}}})->events();
    for (int index = 0; index < 3; ++index) {
        int num_roles = 0, num_ends = 0;
        for (const Json& event : events) {
            if (event.at("choices").empty()) continue;
            const Json choice = only_choice(event);
            if (choice.at("index") != index) continue;
            num_roles += choice.at("delta").contains("role");
            num_ends += !choice.at("finish_reason").is_null();
            if (choice.at("finish_reason").is_null()) continue;
            EXPECT_EQ(choice.at("finish_reason"), index == 1 ? "tool_calls" : "stop");
            EXPECT_EQ(choice.at("usage").at("completion_tokens"),
                      service.scripts[static_cast<size_t>(index)].size());
        }
        EXPECT_EQ(num_roles, 1);
        EXPECT_EQ(num_ends, 1);
    }
    EXPECT_EQ(joined(events, "content", 2), "three");
    EXPECT_EQ(events.back().at("choices"), Json::array());
}

TEST_F(ChatStream, logprobs_come_with_the_content_and_not_with_the_role) {
    service.scripts = {say("so", "日本 🎉")};
    const auto events = stream({{"logprobs", true}, {"top_logprobs", 2}})->events();
    EXPECT_FALSE(only_choice(events[0]).contains("logprobs"));
    std::string bytes;
    for (const Json& event : events) {
        const Json choice = only_choice(event);
        if (!choice.contains("logprobs")) continue;
        EXPECT_TRUE(choice.at("delta").contains("content"));
        for (const Json& entry : choice.at("logprobs").at("content")) {
            EXPECT_EQ(entry.at("top_logprobs").size(), 2u);
            for (const Json& byte : entry.at("bytes")) bytes += static_cast<char>(byte.get<int>());
        }
    }
    EXPECT_EQ(bytes, "日本 🎉");
}

TEST_F(ChatStream, internal_content_and_token_ids_add_up_to_all_ids) {
    service.scripts = {say("so 4", "It is 4.", {{"f", {{"a", "b"}}}})};
    const auto with_internal =
        stream({{"stream_options", {{"include_internal_content", true}}}})->events();
    Ids internal;
    for (size_t i = 1; i + 1 < with_internal.size(); ++i) {
        for (const Json& id : delta(with_internal[i]).at("internal_content").at("token_ids")) {
            internal.push_back(id);
        }
    }
    EXPECT_EQ(internal, service.scripts[0]);
    EXPECT_EQ(delta(with_internal.back()), Json::object());

    const auto with_ids = stream({{"return_token_ids", true}})->events();
    EXPECT_EQ(with_ids[0].at("prompt_token_ids").get<Ids>(), service.submitted(1).request.prompt);
    Ids ids;
    for (size_t i = 1; i < with_ids.size(); ++i) {
        for (const Json& id : only_choice(with_ids[i]).at("token_ids")) ids.push_back(id);
    }
    EXPECT_EQ(ids, service.scripts[0]);
}

// ---- time ----

TEST_F(ChatStream, sends_the_head_at_once_and_the_role_with_the_first_token) {
    const auto reply = stream();
    EXPECT_TRUE(reply->is_stream);
    EXPECT_EQ(reply->response.body, "");
    service.submitted(0).sink->on_token(sampled(text("so")[0]));
    EXPECT_EQ(delta(reply->events().at(0)).at("role"), "assistant");
}

TEST_F(ChatStream, tokens_that_come_before_the_head_are_not_lost) {
    // The service plays inside submit(), when the stream is not open yet.
    service.scripts = {say("", "early")};
    const auto reply = stream();
    EXPECT_EQ(joined(reply->events(), "content"), "early");
    EXPECT_TRUE(reply->is_complete);
}

// ---- errors ----

TEST_F(ChatStream, an_error_after_the_head_is_an_event_and_the_end) {
    const auto reply = stream();
    service.submitted(0).sink->on_token(sampled(text("so")[0]));
    service.submitted(0).sink->on_finish(FinishReason::kError, unavailable("spark-3 is gone"));
    const Json error = reply->events().back().at("error");
    EXPECT_EQ(error.at("message"), "spark-3 is gone");
    EXPECT_EQ(error.at("type"), "unavailable_error");
    EXPECT_TRUE(reply->is_complete);
    EXPECT_EQ(reply->response.body.find("[DONE]"), std::string::npos);
}

TEST_F(ChatStream, an_error_before_the_head_is_an_http_error) {
    service.refusal = unavailable("the station is draining");
    const auto reply = stream();
    EXPECT_FALSE(reply->is_stream);
    EXPECT_EQ(reply->response.status, 503);
    EXPECT_EQ(reply->header("Retry-After"), "1");
}

TEST_F(ChatStream, one_failed_choice_ends_the_others) {
    const auto reply = stream({{"n", 2}});
    service.submitted(0).sink->on_finish(FinishReason::kError,
                                         internal_error("logits are not finite"));
    EXPECT_TRUE(reply->is_complete);
    const size_t size = reply->response.body.size();
    EXPECT_FALSE(service.submitted(1).sink->on_token(sampled(5)));
    EXPECT_EQ(reply->response.body.size(), size);
}

TEST_F(ChatStream, a_client_that_leaves_cancels_every_choice) {
    const auto reply = stream({{"n", 3}});
    ASSERT_TRUE(reply->disconnect);
    reply->disconnect();
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(service.is_cancelled(service.submitted(i).handle));
    const size_t size = reply->response.body.size();
    EXPECT_TRUE(service.submitted(0).sink->on_token(sampled(5)));
    service.submitted(0).sink->on_finish(FinishReason::kCancelled, Status::ok());
    EXPECT_EQ(reply->response.body.size(), size);
}

TEST_F(ChatStream, answers_under_way_outlive_the_api) {
    const auto reply = stream();
    api.reset();
    ScriptedService::play(service.submitted(0), say("", "late"));
    EXPECT_EQ(joined(reply->events(), "content"), "late");
}

}  // namespace
}  // namespace k3pod::testing

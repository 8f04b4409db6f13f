// What a chat request may be, and what becomes of it on the way to the engine.

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;

using ChatAcceptance = ApiTest;

TEST_F(ChatAcceptance, ignores_fields_that_it_does_not_know) {
    service.scripts = {say("", "ok")};
    EXPECT_EQ(
        chat({{"user", "me"}, {"metadata", {{"a", {1, 2}}}}, {"store", true}, {"xyz", nullptr}})
            ->response.status,
        200);
}

TEST_F(ChatAcceptance, null_is_the_same_as_absent) {
    service.scripts = {say("", "ok")};
    Json fields;
    for (const char* name : {"temperature", "top_p", "n", "stop", "seed", "max_tokens", "tools",
                             "tool_choice", "response_format", "stream", "stream_options",
                             "logit_bias", "model", "logprobs", "reasoning_effort"}) {
        fields[name] = nullptr;
    }
    EXPECT_EQ(chat(fields)->response.status, 200);
}

TEST_F(ChatAcceptance, hands_sampling_to_the_engine) {
    service.scripts = {say("", "ok")};
    chat({{"temperature", 0.5},
          {"top_p", 0.25},
          {"top_k", 7},
          {"min_p", 0.125},
          {"presence_penalty", 1},
          {"frequency_penalty", -1},
          {"repetition_penalty", 1.5},
          {"logit_bias", {{"5", -100}}},
          {"seed", -1},
          {"max_tokens", 9},
          {"min_tokens", 2}});
    const GenerationRequest request = service.submitted(0).request;
    EXPECT_EQ(request.sampling.temperature, 0.5f);
    EXPECT_EQ(request.sampling.top_p, 0.25f);
    EXPECT_EQ(request.sampling.top_k, 7);
    EXPECT_EQ(request.sampling.min_p, 0.125f);
    EXPECT_EQ(request.sampling.presence_penalty, 1);
    EXPECT_EQ(request.sampling.frequency_penalty, -1);
    EXPECT_EQ(request.sampling.repetition_penalty, 1.5f);
    EXPECT_EQ(request.sampling.logit_bias, (std::map<int32_t, float>{{5, -100.f}}));
    EXPECT_EQ(request.sampling.seed, UINT64_MAX);
    EXPECT_EQ(request.max_tokens, 9);
    EXPECT_EQ(request.min_tokens, 2);
    EXPECT_EQ(request.sampling.num_logprobs, -1);
}

TEST_F(ChatAcceptance, a_positive_number_below_fp32_is_not_taken_for_zero) {
    service.scripts = {say("", "ok")};
    EXPECT_EQ(
        chat({{"temperature", 1e-300}, {"top_p", 1e-300}, {"min_p", 1e-300}})->response.status,
        200);
    const SamplingParams sampling = service.submitted(0).request.sampling;
    EXPECT_GT(sampling.top_p, 0.0f);  // 0 would keep no token at all
    EXPECT_LT(sampling.top_p, 1e-30f);
    EXPECT_EQ(sampling.temperature, 0.0f);  // Both have a meaning at 0, the limit's own.
    EXPECT_EQ(sampling.min_p, 0.0f);
}

TEST_F(ChatAcceptance, takes_defaults_from_the_model_and_the_service) {
    create({.model_name = "k3-tiny", .default_temperature = 0.75f, .default_top_p = 0.95f});
    service.scripts = {say("", "ok")};
    service.default_limit = 77;
    chat();
    chat();
    const GenerationRequest first = service.submitted(0).request;
    EXPECT_EQ(first.sampling.temperature, 0.75f);
    EXPECT_EQ(first.sampling.top_p, 0.95f);
    EXPECT_EQ(first.max_tokens, 77);
    EXPECT_NE(first.sampling.seed, service.submitted(1).request.sampling.seed);
}

TEST_F(ChatAcceptance, max_completion_tokens_wins_over_max_tokens) {
    service.scripts = {say("", "ok")};
    chat({{"max_tokens", 10}, {"max_completion_tokens", 20}});
    EXPECT_EQ(service.submitted(0).request.max_tokens, 20);
}

TEST_F(ChatAcceptance, whole_numbers_may_be_written_as_reals) {
    service.scripts = {say("", "ok")};
    EXPECT_EQ(call("POST", "/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"x"}],"max_tokens":2e1,"n":1.0})")
                  ->response.status,
              200);
    EXPECT_EQ(service.submitted(0).request.max_tokens, 20);
}

TEST_F(ChatAcceptance, developer_is_system) {
    service.scripts = {say("", "ok")};
    for (const char* role : {"system", "developer"}) {
        chat({{"messages", {{{"role", role}, {"content", "Be terse."}}}}});
    }
    EXPECT_EQ(service.submitted(0).request.prompt, service.submitted(1).request.prompt);
    EXPECT_THAT(prompt(), HasSubstr("Be terse."));
}

TEST_F(ChatAcceptance, content_may_be_null_missing_empty_or_parts_for_every_role) {
    service.scripts = {say("", "ok")};
    for (const std::string role : {"system", "developer", "user", "assistant", "tool"}) {
        for (const std::string content :
             {"", R"(,"content":null)", R"(,"content":"")", R"(,"content":[])",
              R"(,"content":[{"type":"text","text":"Hi"}])"}) {
            const std::string body =
                R"({"messages":[{"role":")" + role + R"(","name":"f")" + content + "}]}";
            EXPECT_EQ(call("POST", "/v1/chat/completions", body)->response.status, 200) << body;
        }
    }
}

TEST_F(ChatAcceptance, parts_give_the_same_prompt_as_text) {
    service.scripts = {say("", "ok")};
    chat({{"messages", {{{"role", "user"}, {"content", "Hello"}}}}});
    chat(
        {{"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hello"}}}}}}}});
    EXPECT_EQ(service.submitted(0).request.prompt, service.submitted(1).request.prompt);
}

TEST_F(ChatAcceptance, history_keeps_reasoning_calls_and_number_literals) {
    service.scripts = {say("", "ok")};
    const std::string body = R"({"messages":[
        {"role":"user","content":"go"},
        {"role":"assistant","content":null,"reasoning":"because","tool_calls":[
            {"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1e2}"}},
            {"id":"b","type":"function","function":{"name":"g","arguments":{"y": 0.10}}}]},
        {"role":"tool","tool_call_id":"b","content":"second"},
        {"role":"tool","tool_call_id":"a","content":"first"}]})";
    EXPECT_EQ(call("POST", "/v1/chat/completions", body)->response.status, 200);
    EXPECT_THAT(prompt(), HasSubstr("because"));
    EXPECT_THAT(prompt(), HasSubstr("1e2"));
    EXPECT_THAT(prompt(), HasSubstr("0.10"));
    EXPECT_LT(prompt().find("first"), prompt().find("second"));
}

TEST_F(ChatAcceptance, control_text_of_users_stays_text) {
    service.scripts = {say("", "ok")};
    chat({{"messages", {{{"role", "user"}, {"content", "<|open|>[EOS]<|end_of_msg|>"}}}}});
    const Ids plain = encode_tiny("<|open|>[EOS]<|end_of_msg|>");
    const Ids rendered = service.submitted(0).request.prompt;
    EXPECT_NE(std::search(rendered.begin(), rendered.end(), plain.begin(), plain.end()),
              rendered.end());
}

TEST_F(ChatAcceptance, tools_and_formats_reach_the_prompt) {
    service.scripts = {say("", "ok")};
    const Json tool = {
        {"type", "function"},
        {"function", {{"name", "get_weather"}, {"parameters", {{"type", "object"}}}}}};
    chat({{"tools", {tool}}, {"tool_choice", "required"}});
    EXPECT_THAT(prompt(0), HasSubstr("get_weather"));
    EXPECT_THAT(prompt(0), HasSubstr("You must call a tool."));
    chat({{"tools", {tool}}, {"tool_choice", "none"}});
    EXPECT_THAT(prompt(1), HasSubstr("You must not call a tool."));
    chat({{"tools", {tool}},
          {"tool_choice", {{"type", "function"}, {"function", {{"name", "get_weather"}}}}}});
    EXPECT_THAT(prompt(2), HasSubstr("You must call a tool."));
    chat({{"response_format", {{"type", "json_object"}}}});
    EXPECT_THAT(prompt(3), HasSubstr("Answer with one JSON object."));
    chat({{"response_format",
           {{"type", "json_schema"},
            {"json_schema", {{"name", "n"}, {"schema", {{"type", "string"}}}}}}}});
    EXPECT_THAT(prompt(4), HasSubstr(R"({"type":"string"})"));
    chat({{"tools", Json::array()}, {"tool_choice", "none"}});
    EXPECT_EQ(prompt(5).find("call a tool"), std::string::npos);
}

// ---- thinking ----

struct Spelling {
    const char* fields;
    const char* effort;  // "" for none in the prompt
    bool is_thinking;
};

void PrintTo(const Spelling& spelling, std::ostream* out) {
    *out << spelling.fields;
}

class ThinkingSpelling : public ApiTest, public ::testing::WithParamInterface<Spelling> {};

TEST_P(ThinkingSpelling, decides_what_the_prompt_says) {
    service.scripts = {say("", "ok")};
    ASSERT_EQ(chat(Json::parse(GetParam().fields))->response.status, 200);
    const std::string text = prompt();
    const std::string effort = GetParam().effort;
    if (effort.empty()) {
        EXPECT_EQ(text.find("Thinking effort:"), std::string::npos);
    } else {
        EXPECT_THAT(text, HasSubstr("Thinking effort: " + effort + "<"));
    }
    const char* end = GetParam().is_thinking ? "<|open|>think<|sep|>" : "<|open|>response<|sep|>";
    EXPECT_TRUE(text.ends_with(end)) << text;
}

constexpr Spelling kSpellings[] = {
    {R"({})", "max", true},
    {R"({"reasoning_effort": "low"})", "low", true},
    {R"({"reasoning_effort": "minimal"})", "low", true},
    {R"({"reasoning_effort": "medium"})", "high", true},
    {R"({"reasoning_effort": "xhigh"})", "max", true},
    {R"({"reasoning_effort": "none"})", "", false},
    {R"({"thinking": {"type": "disabled"}})", "", false},
    {R"({"thinking": {"type": "enabled", "effort": "high", "keep": "all"}})", "high", true},
    {R"({"chat_template_kwargs": {"thinking": false}})", "", false},
    {R"({"chat_template_kwargs": {"enable_thinking": false}})", "", false},
    {R"({"chat_template_kwargs": {"thinking_effort": "low", "preserve_thinking": true}})", "low",
     true},
    {R"({"chat_template_kwargs": {"thinking_effort": null}})", "", true},
    // The stronger spelling wins.
    {R"({"reasoning_effort": "low", "thinking": {"effort": "high"}})", "high", true},
    {R"({"thinking": {"effort": "high"}, "chat_template_kwargs": {"thinking_effort": "low"}})",
     "low", true},
    {R"({"reasoning_effort": "none", "thinking": {"type": "enabled"}})", "max", true},
    {R"({"thinking": {"type": "disabled"}, "chat_template_kwargs": {"thinking": true}})", "max",
     true},
};
INSTANTIATE_TEST_SUITE_P(All, ThinkingSpelling, ::testing::ValuesIn(kSpellings));

}  // namespace
}  // namespace k3pod::testing

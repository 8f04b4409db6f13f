// Every field of a chat request of the wrong type, size or value is a 400 that names it.

#include <gmock/gmock.h>

#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;

struct Wrong {
    const char* fields;   // JSON members that are put over a good request
    const char* param;    // "" for null
    const char* message;  // a part of it
};

void PrintTo(const Wrong& wrong, std::ostream* out) {
    *out << wrong.fields;
}

class ChatRefusal : public ApiTest, public ::testing::WithParamInterface<Wrong> {};

TEST_P(ChatRefusal, is_400_with_the_field) {
    Json fields = Json::parse(GetParam().fields);
    const auto reply = chat(fields);
    EXPECT_EQ(reply->response.status, 400) << reply->response.body;
    const Json error = reply->json().at("error");
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_EQ(error.at("param").is_null() ? "" : error.at("param"), GetParam().param);
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(GetParam().message));
    EXPECT_EQ(service.num_submitted(), 0u);
}

constexpr Wrong kWrongSampling[] = {
    {R"({"temperature": 2.5})", "temperature", "from 0 to 2, found '2.5'"},
    {R"({"temperature": -1})", "temperature", "from 0 to 2, found '-1'"},
    {R"({"temperature": "1"})", "temperature", "a number from 0 to 2, found '\"1\"'"},
    {R"({"temperature": 1e300})", "temperature", "found '1e"},
    {R"({"top_p": 0})", "top_p", "above 0 and up to 1, found '0'"},
    {R"({"top_p": 1.01})", "top_p", "above 0 and up to 1"},
    {R"({"top_k": -2})", "top_k", "an integer from -1 to 2147483647"},
    {R"({"top_k": 1.5})", "top_k", "an integer"},
    {R"({"top_k": 99999999999999999999})", "top_k", "an integer"},
    {R"({"min_p": 2})", "min_p", "from 0 to 1"},
    {R"({"presence_penalty": 3})", "presence_penalty", "from -2 to 2"},
    {R"({"frequency_penalty": -2.1})", "frequency_penalty", "from -2 to 2"},
    {R"({"repetition_penalty": 0})", "repetition_penalty", "from 1e-06 to 2, found '0'"},
    {R"({"repetition_penalty": 1e-300})", "repetition_penalty", "from 1e-06 to 2, found '1e-300'"},
    {R"({"top_p": -1e-300})", "top_p", "above 0 and up to 1, found '-1e-300'"},
    {R"({"min_p": -1e-300})", "min_p", "from 0 to 1, found '-1e-300'"},
    {R"({"n": 1e-300})", "n", "found '1e-300'"},
    {R"({"logit_bias": []})", "logit_bias", "an object"},
    {R"({"logit_bias": {"x": 1}})", "logit_bias", "token ids from 0 to 2303, found 'x'"},
    {R"({"logit_bias": {"2304": 1}})", "logit_bias", "found '2304'"},
    {R"({"logit_bias": {"5": 101}})", "logit_bias.5", "from -100 to 100"},
    {R"({"seed": 9223372036854775808})", "seed", "an integer"},
    {R"({"n": 0})", "n", "from 1 to 128"},
    {R"({"n": 129})", "n", "from 1 to 128, found '129'"},
    {R"({"n": true})", "n", "found 'true'"},
    {R"({"max_tokens": 0})", "max_tokens", "from 1 to"},
    {R"({"max_tokens": -5})", "max_tokens", "found '-5'"},
    {R"({"max_completion_tokens": "9"})", "max_completion_tokens", "an integer"},
    {R"({"max_tokens": 5, "min_tokens": 6})", "min_tokens", "6 is more than the limit of 5"},
    {R"({"min_tokens": -1})", "min_tokens", "from 0"},
    {R"({"ignore_eos": 1})", "ignore_eos", "true or false, found '1'"},
};
INSTANTIATE_TEST_SUITE_P(Sampling, ChatRefusal, ::testing::ValuesIn(kWrongSampling));

constexpr Wrong kWrongOutput[] = {
    {R"({"stop": ""})", "stop", "a string of 1 to 1024 bytes"},
    {R"({"stop": [1]})", "stop[0]", "a string"},
    {R"({"stop": {}})", "stop", "a string or an array of strings"},
    {R"({"stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})",
     "stop[16]", "at most 16"},
    {R"({"stop_token_ids": [5, 2304]})", "stop_token_ids", "found '2304' at index 1"},
    {R"({"stop_token_ids": [-1]})", "stop_token_ids", "found '-1' at index 0"},
    {R"({"stop_token_ids": 7})", "stop_token_ids", "an array of token ids"},
    {R"({"include_stop_str_in_output": "yes"})", "include_stop_str_in_output", "true or false"},
    {R"({"stream": "true"})", "stream", "true or false"},
    {R"({"stream_options": {"include_usage": true}})", "stream_options", "\"stream\": true"},
    {R"({"stream": true, "stream_options": 1})", "stream_options", "an object"},
    {R"({"stream": true, "stream_options": {"include_usage": 1}})", "stream_options.include_usage",
     "true or false"},
    {R"({"logprobs": 5})", "logprobs", "true or false"},
    {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs", "from 0 to 20"},
    {R"({"top_logprobs": 2})", "top_logprobs", "needs \"logprobs\": true"},
    {R"({"prompt_logprobs": 1})", "prompt_logprobs", "not supported"},
    {R"({"response_format": "json"})", "response_format", "an object"},
    {R"({"response_format": {}})", "response_format.type", "is missing"},
    {R"({"response_format": {"type": "xml"}})", "response_format.type",
     "json_object or json_schema"},
    {R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema",
     "is missing"},
    {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}})",
     "response_format.json_schema.schema", "an object"},
    {R"({"continue_final_message": true})", "continue_final_message", "only false"},
    {R"({"add_generation_prompt": false})", "add_generation_prompt", "only true"},
    {R"({"functions": []})", "functions", "use tools"},
    {R"({"model": 5})", "model", "a string"},
};
INSTANTIATE_TEST_SUITE_P(Output, ChatRefusal, ::testing::ValuesIn(kWrongOutput));

constexpr Wrong kWrongMessages[] = {
    {R"({"messages": null})", "messages", "is missing"},
    {R"({"messages": []})", "messages", "at least one message"},
    {R"({"messages": "Hi"})", "messages", "an array"},
    {R"({"messages": [5]})", "messages[0]", "an object, found '5'"},
    {R"({"messages": [{"content": "x"}]})", "messages[0].role", "is missing"},
    {R"({"messages": [{"role": "robot", "content": "x"}]})", "messages[0].role",
     "found '\"robot\"'"},
    {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content", "found '5'"},
    {R"({"messages": [{"role": "user", "content": [5]}]})", "messages[0].content[0]", "an object"},
    {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
     "messages[0].content[0].text", "is missing"},
    {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
     "messages[0].content[0].type", "the only kind of part"},
    {R"({"messages": [{"role": "user", "name": 5, "content": "x"}]})", "messages[0].name",
     "a string"},
    {R"({"messages": [{"role": "assistant", "tool_calls": {}}]})", "messages[0].tool_calls",
     "an array"},
    {R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})",
     "messages[0].tool_calls[0].function", "is missing"},
    {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}]})",
     "messages[0].tool_calls[0].function.name", "the name of a function"},
    {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}]})",
     "messages[0].tool_calls[0].function.arguments", "a string or an object"},
    {R"({"messages": [{"role": "assistant", "reasoning_content": []}]})",
     "messages[0].reasoning_content", "a string"},
    {R"({"messages": [{"role": "tool", "content": "x"}]})", "messages[0]", "names no tool"},
    {R"({"messages": [{"role": "user", "content": "x", "tools": [{}]}]})", "messages[0].tools",
     "only a system message"},
};
INSTANTIATE_TEST_SUITE_P(Messages, ChatRefusal, ::testing::ValuesIn(kWrongMessages));

constexpr Wrong kWrongTools[] = {
    {R"({"tools": {}})", "tools", "an array"},
    {R"({"tools": [5]})", "tools[0]", "an object"},
    {R"({"tools": [{"type": "code", "function": {"name": "f"}}]})", "tools[0].type",
     "\"function\""},
    {R"({"tools": [{"type": "function"}]})", "tools[0].function", "is missing"},
    {R"({"tools": [{"type": "function", "function": {}}]})", "tools[0].function.name",
     "is missing"},
    {R"({"tools": [{"type": "function", "function": {"name": ""}}]})", "tools[0].function.name",
     "1 to 256 bytes"},
    {R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]})",
     "tools[0].function.parameters", "an object"},
    {R"({"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}]})",
     "tools[1]", "declared twice"},
    {R"({"tool_choice": "required"})", "tool_choice", "needs tools"},
    {R"({"tool_choice": "any"})", "tool_choice", "auto, none, required"},
    {R"({"tool_choice": 5})", "tool_choice", "auto, none, required"},
    {R"({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [{"type": "function", "function": {"name": "f"}}]})",
     "tool_choice.function.name", "one of the tools"},
    {R"({"parallel_tool_calls": 1})", "parallel_tool_calls", "true or false"},
    // Tools that a system message declares.
    {R"({"messages": [{"role": "system", "content": "x", "tools": [{"type": "function", "function": {"name": "f"}}]}]})",
     "messages[0]", "not both"},
    {R"({"messages": [{"role": "system", "tools": [{"type": "function", "function": {"name": "1f"}}]}]})",
     "messages[0]", "1f"},
    {R"({"messages": [{"role": "system", "tools": [{"type": "function", "function": {"name": "f"}}]}], "tools": [{"type": "function", "function": {"name": "f"}}]})",
     "messages[0]", "declared already"},
};
INSTANTIATE_TEST_SUITE_P(Tools, ChatRefusal, ::testing::ValuesIn(kWrongTools));

constexpr Wrong kWrongThinking[] = {
    {R"({"reasoning_effort": "huge"})", "reasoning_effort", "found '\"huge\"'"},
    {R"({"reasoning_effort": 3})", "reasoning_effort", "a string"},
    {R"({"thinking": "on"})", "thinking", "an object"},
    {R"({"thinking": {"type": "maybe"}})", "thinking.type", "enabled or disabled"},
    {R"({"thinking": {"effort": "some"}})", "thinking.effort", "low"},
    {R"({"chat_template_kwargs": []})", "chat_template_kwargs", "an object"},
    {R"({"chat_template_kwargs": {"thinking": "yes"}})", "chat_template_kwargs.thinking",
     "true or false"},
    {R"({"chat_template_kwargs": {"thinking_effort": "medium"}})",
     "chat_template_kwargs.thinking_effort", "low, high or max"},
    {R"({"include_reasoning": "no"})", "include_reasoning", "true or false"},
};
INSTANTIATE_TEST_SUITE_P(Thinking, ChatRefusal, ::testing::ValuesIn(kWrongThinking));

}  // namespace
}  // namespace k3pod::testing

// Bodies of a chat request as a whole: what is no JSON, too deep, too large or too long.

#include <gmock/gmock.h>

#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ChatBodyTest : public ApiTest {
  protected:
    // Status and message of a refusal that must be small.
    std::pair<int, std::string> refusal(const std::string& body) {
        const auto reply = call("POST", "/v1/chat/completions", body);
        EXPECT_LT(reply->response.body.size(), 16u << 10);
        return {reply->response.status, reply->json().at("error").at("message")};
    }
};

TEST_F(ChatBodyTest, refuses_what_is_not_json) {
    for (const std::string body :
         {"", "{", "x", R"({"messages": )", R"({"messages": []} x)", R"({"a": 1,})",
          R"({"a": NaN})", R"({"a": 01})", R"({"a": 'x'})", "{\"a\": \"\n\"}", R"({"a": "\x"})"}) {
        const auto [status, message] = refusal(body);
        EXPECT_EQ(status, 400) << body;
        EXPECT_THAT(message, StartsWith("the body is not valid JSON: ")) << body;
    }
}

TEST_F(ChatBodyTest, takes_one_byte_order_mark_in_front) {
    service.scripts = {say("", "ok")};
    const std::string mark = "\xef\xbb\xbf",
                      body = R"({"messages":[{"role":"user","content":"x"}]})";
    EXPECT_EQ(call("POST", "/v1/chat/completions", mark + body)->response.status, 200);
    EXPECT_EQ(refusal(mark + mark + body).first, 400);
}

TEST_F(ChatBodyTest, refuses_json_that_is_not_an_object) {
    for (const std::string body : {"[]", "5", "null", "\"x\""}) {
        const auto [status, message] = refusal(body);
        EXPECT_EQ(status, 400);
        EXPECT_EQ(message, "the body is not a JSON object: it begins with '" + body + "'");
    }
}

TEST_F(ChatBodyTest, refuses_lone_surrogates_and_takes_pairs) {
    for (const char* lone : {R"(\ud83d)", R"(\udc4d)", R"(\ud83dx)", R"(\ud83d\u0041)"}) {
        const auto [status, message] =
            refusal(std::string(R"({"messages":[{"role":"user","content":")") + lone + "\"}]}");
        EXPECT_EQ(status, 400) << lone;
        EXPECT_THAT(message, HasSubstr("a pair of surrogates"));
    }
    service.scripts = {say("", "ok")};
    const auto reply = call("POST", "/v1/chat/completions",
                            R"({"messages":[{"role":"user","content":"\ud83d\udc4d"}]})");
    EXPECT_EQ(reply->response.status, 200);
    EXPECT_THAT(prompt(), HasSubstr("👍"));
}

TEST_F(ChatBodyTest, refuses_invalid_utf8) {
    for (const std::string bytes : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf0\x9f\x91"}) {
        const auto [status, message] =
            refusal("{\"messages\":[{\"role\":\"user\",\"content\":\"" + bytes + "\"}]}");
        EXPECT_EQ(status, 400);
        EXPECT_EQ(message, "the body is not valid UTF-8");
    }
}

TEST_F(ChatBodyTest, survives_a_body_of_brackets) {
    EXPECT_EQ(refusal(std::string(100'000, '[')).first, 400);
    std::string nested;
    for (int i = 0; i < 100'000; ++i) nested += "{\"a\":";
    EXPECT_EQ(refusal(nested).first, 400);
    EXPECT_EQ(refusal(R"({"messages":)" + std::string(100'000, '[')).first, 400);
}

TEST_F(ChatBodyTest, never_echoes_large_input) {
    const std::string large(1 << 20, 'x');
    EXPECT_EQ(refusal(R"({"model":")" + large + "\"}").first, 404);
    EXPECT_EQ(refusal(R"({"temperature":")" + large + "\"}").first, 400);
    EXPECT_EQ(refusal(R"({"logit_bias":{")" + large + "\":1}}").first, 400);
    EXPECT_EQ(refusal(R"({"messages":[{"role":")" + large + "\"}]}").first, 400);
    EXPECT_EQ(
        refusal(R"({"tools":[{"type":"function","function":{"name":")" + large + "\"}}]}").first,
        400);
}

TEST_F(ChatBodyTest, answers_bodies_of_every_size_with_200_400_or_413) {
    service.scripts = {say("", "ok")};
    for (size_t size = 1 << 10; size <= 32u << 20; size *= 2) {
        Json body;
        body["messages"] = {{{"role", "user"}, {"content", std::string(size, 'a')}}};
        const auto reply = post("/v1/chat/completions", body);
        EXPECT_TRUE(reply->response.status == 200 || reply->response.status == 400) << size;
        EXPECT_LT(reply->response.body.size(), 16u << 10);
    }
}

TEST_F(ChatBodyTest, refuses_ten_thousand_wrong_messages_with_one_small_error) {
    Json body;
    for (int i = 0; i < 10'000; ++i) body["messages"].push_back({{"role", i}, {"content", i}});
    const auto [status, message] = refusal(body.dump());
    EXPECT_EQ(status, 400);
    EXPECT_EQ(message, "messages[0].role: expected a string, found '0'");
}

TEST_F(ChatBodyTest, refuses_an_object_of_a_million_members) {
    std::string body = "{";
    for (int i = 0; i < 1'000'000; ++i) body += "\"" + std::to_string(i) + "\":1,";
    body.back() = '}';
    EXPECT_THAT(refusal(body).second, HasSubstr("more than 4096 members"));
}

TEST_F(ChatBodyTest, refuses_a_prompt_that_does_not_fit_with_the_figures) {
    service.context = 50;
    const auto reply = chat({{"max_tokens", 40}});
    EXPECT_EQ(reply->response.status, 400);
    const Json error = reply->json().at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("40 are to be generated"));
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("context is 50"));
}

}  // namespace
}  // namespace k3pod::testing

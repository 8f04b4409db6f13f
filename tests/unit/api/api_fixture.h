#pragma once
// An OpenAiApi over a scripted service and the tokenizer of k3-tiny, without sockets.

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "k3pod/api/openai_api.h"
#include "tests/support/scripted_service.h"
#include "tests/support/tiny_tokenizer.h"

namespace k3pod::testing {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

// Keeps what a handler answers.
class CapturedReply final : public HttpReply {
  public:
    void send(HttpResponse sent) override {
        response = std::move(sent);
        is_complete = true;
    }
    void begin_stream(HttpResponse head) override {
        response = std::move(head);
        is_stream = true;
    }
    void write(std::string piece) override { response.body += piece; }
    void end() override { is_complete = true; }
    void on_disconnect(std::function<void()> callback) override {
        disconnect = std::move(callback);
    }

    // The objects of a stream's events, without "[DONE]".
    std::vector<Json> events() const;
    Json json() const { return Json::parse(response.body); }
    std::string header(const std::string& name) const;

    HttpResponse response{.status = 0};
    bool is_stream = false;
    bool is_complete = false;
    std::function<void()> disconnect;
};

class ApiTest : public ::testing::Test {
  protected:
    ApiTest();

    std::shared_ptr<CapturedReply> call(const std::string& method, const std::string& path,
                                        const std::string& body = {},
                                        const std::string& content_type = "application/json");
    std::shared_ptr<CapturedReply> post(const std::string& path, const Json& body) {
        return call("POST", path, body.dump());
    }
    // A chat with one question and further fields.
    std::shared_ptr<CapturedReply> chat(Json fields = Json::object());
    std::shared_ptr<CapturedReply> complete(Json fields = Json::object());
    void create(const ApiOptions& options);

    // What the model says: thinking, answer, and the end of the message, in K3's format.
    static Ids say(const std::string& reasoning, const std::string& content);
    // The same with calls behind the content; arguments are (key, text) strings.
    struct Call {
        std::string name;
        std::vector<std::pair<std::string, std::string>> arguments;
    };
    static Ids say(const std::string& reasoning, const std::string& content,
                   const std::vector<Call>& calls);
    // Up to the last token of the content, nothing closed.
    static Ids begin_saying(const std::string& reasoning, const std::string& content);
    static Ids text(const std::string& words) { return encode_tiny(words); }
    // Tokens of thinking, with the tag that closes it up to its separator.
    static size_t num_reasoning(const std::string& words) {
        return text(words).size() + 1 + text("think").size();
    }
    // The prompt of the `index`-th request as text.
    std::string prompt(size_t index = 0) {
        return decode_tiny(service.submitted(index).request.prompt);
    }

    SteadyClock clock;
    MetricsRegistry metrics;
    ScriptedService service{2304};
    ChatWording wording;
    std::unique_ptr<OpenAiApi> api;
};

Ids operator+(Ids left, const Ids& right);

// A joined field of all deltas of a choice: "content", "reasoning_content".
std::string joined(const std::vector<Json>& events, const std::string& field, int index = 0);

}  // namespace k3pod::testing

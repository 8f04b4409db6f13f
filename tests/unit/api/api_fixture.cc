#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {

Ids operator+(Ids left, const Ids& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

std::vector<Json> CapturedReply::events() const {
    std::vector<Json> events;
    size_t at = 0;
    while (at < response.body.size()) {
        const size_t end = response.body.find("\n\n", at);
        const std::string event = response.body.substr(at, end - at);
        EXPECT_EQ(event.substr(0, 6), "data: ");
        if (event != "data: [DONE]") events.push_back(Json::parse(event.substr(6)));
        at = end + 2;
    }
    return events;
}

std::string CapturedReply::header(const std::string& name) const {
    for (const auto& [key, value] : response.headers) {
        if (key == name) return value;
    }
    return {};
}

ApiTest::ApiTest() : wording(read_chat_wording(K3POD_SOURCE_DIR "/models/k3-tiny").value()) {
    create({.model_name = "k3-tiny", .build_id = "test"});
}

void ApiTest::create(const ApiOptions& options) {
    api = OpenAiApi::create(options, service, tiny_tokenizer(), wording, clock, metrics);
}

std::shared_ptr<CapturedReply> ApiTest::call(const std::string& method, const std::string& path,
                                             const std::string& body,
                                             const std::string& content_type) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    if (!content_type.empty()) request.headers.emplace_back("Content-Type", content_type);
    const auto reply = std::make_shared<CapturedReply>();
    api->handle(std::move(request), reply);
    return reply;
}

std::shared_ptr<CapturedReply> ApiTest::chat(Json fields) {
    if (!fields.contains("messages")) {
        fields["messages"] = Json::array({{{"role", "user"}, {"content", "Hi"}}});
    }
    return post("/v1/chat/completions", fields);
}

std::shared_ptr<CapturedReply> ApiTest::complete(Json fields) {
    if (!fields.contains("prompt")) fields["prompt"] = "Hi";
    return post("/v1/completions", fields);
}

Ids ApiTest::say(const std::string& reasoning, const std::string& content) {
    return say(reasoning, content, {});
}

namespace {

Ids open(const std::string& tag) {
    const Tokenizer::Markers& marker = tiny_tokenizer().markers();
    return Ids{marker.open} + encode_tiny(tag) + Ids{marker.sep};
}

Ids close(const std::string& tag) {
    const Tokenizer::Markers& marker = tiny_tokenizer().markers();
    return Ids{marker.close} + encode_tiny(tag) + Ids{marker.sep};
}

}  // namespace

Ids ApiTest::begin_saying(const std::string& reasoning, const std::string& content) {
    return text(reasoning) + close("think") + open("response") + text(content);
}

Ids ApiTest::say(const std::string& reasoning, const std::string& content,
                 const std::vector<Call>& calls) {
    Ids ids = begin_saying(reasoning, content) + close("response");
    if (!calls.empty()) ids = ids + open("tools");
    for (size_t i = 0; i < calls.size(); ++i) {
        ids = ids +
              open("call tool=\"" + calls[i].name + "\" index=\"" + std::to_string(i + 1) + "\"");
        for (const auto& [key, value] : calls[i].arguments) {
            ids = ids + open("argument key=\"" + key + "\" type=\"string\"") + text(value) +
                  close("argument");
        }
        ids = ids + close("call");
    }
    if (!calls.empty()) ids = ids + close("tools");
    return ids + close("message") + Ids{tiny_tokenizer().markers().end_of_msg};
}

std::string joined(const std::vector<Json>& events, const std::string& field, int index) {
    std::string text;
    for (const Json& event : events) {
        for (const Json& choice : event.at("choices")) {
            if (choice.at("index") == index) text += choice.at("delta").value(field, "");
        }
    }
    return text;
}

}  // namespace k3pod::testing

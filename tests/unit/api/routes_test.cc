// All routes but generation: models, tokens, health, metrics; and the wrong ones.

#include <gmock/gmock.h>

#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;
using Routes = ApiTest;

TEST_F(Routes, refuses_unknown_paths_methods_and_types_in_openais_shape) {
    struct Case {
        const char *method, *path, *type;
        int status;
        const char* error_type;
    };
    const Case cases[] = {
        {"GET", "/", "", 404, "not_found_error"},
        {"POST", "/v1/embeddings", "application/json", 404, "not_found_error"},
        {"GET", "/v1/modelsx", "", 404, "not_found_error"},
        {"GET", "/v1/chat/completions", "", 405, "invalid_request_error"},
        {"DELETE", "/v1/models", "", 405, "invalid_request_error"},
        {"POST", "/health", "application/json", 405, "invalid_request_error"},
        {"POST", "/v1/chat/completions", "text/plain", 415, "invalid_request_error"},
        {"POST", "/tokenize", "multipart/form-data; boundary=x", 415, "invalid_request_error"},
    };
    for (const Case& c : cases) {
        const auto reply = call(c.method, c.path, "{}", c.type);
        EXPECT_EQ(reply->response.status, c.status) << c.method << " " << c.path;
        EXPECT_EQ(reply->json().at("error").at("type"), c.error_type);
        EXPECT_FALSE(reply->json().at("error").at("message").get<std::string>().empty());
    }
    EXPECT_EQ(call("GET", "/v1/completions")->header("Allow"), "POST, OPTIONS");
}

TEST_F(Routes, takes_json_with_a_charset_or_without_a_type) {
    for (const char* type : {"", "application/json; charset=utf-8", "Application/JSON"}) {
        EXPECT_EQ(call("POST", "/tokenize", R"({"prompt":"a"})", type)->response.status, 200)
            << type;
    }
}

TEST_F(Routes, answers_options) {
    const auto reply = call("OPTIONS", "/v1/chat/completions", "", "");
    EXPECT_EQ(reply->response.status, 204);
    EXPECT_EQ(reply->header("Allow"), "POST, OPTIONS");
    const auto whole = call("OPTIONS", "*", "", "");
    EXPECT_EQ(whole->response.status, 204);
    EXPECT_EQ(whole->header("Allow"), "GET, HEAD, POST, OPTIONS");
    EXPECT_EQ(call("GET", "*")->response.status, 404);
}

TEST_F(Routes, lists_the_model_and_finds_it_by_id) {
    create({.model_name = "moonshotai/Kimi-K3"});
    const Json list = call("GET", "/v1/models")->json();
    EXPECT_EQ(list.at("object"), "list");
    ASSERT_EQ(list.at("data").size(), 1u);
    EXPECT_EQ(list.at("data").at(0).at("id"), "moonshotai/Kimi-K3");
    EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 4096);
    EXPECT_EQ(call("GET", "/v1/models/moonshotai/Kimi-K3")->json(), list.at("data").at(0));
    const auto missing = call("GET", "/v1/models/other");
    EXPECT_EQ(missing->response.status, 404);
    EXPECT_EQ(missing->json().at("error").at("code"), "model_not_found");
}

TEST_F(Routes, refuses_another_model_by_name) {
    for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
        const auto reply = post(path, {{"model", "gpt-5"},
                                       {"prompt", "a"},
                                       {"messages", {{{"role", "user"}, {"content", "a"}}}}});
        EXPECT_EQ(reply->response.status, 404);
        EXPECT_EQ(reply->json().at("error").at("code"), "model_not_found");
        EXPECT_THAT(reply->json().at("error").at("message").get<std::string>(),
                    HasSubstr("this server has 'k3-tiny'"));
    }
}

TEST_F(Routes, tokenizes_text_and_back) {
    const std::string words = "Hello 日本 🎉 <|open|>";
    const Json tokens = post("/tokenize", {{"prompt", words}, {"return_token_strs", true}})->json();
    EXPECT_EQ(tokens.at("tokens").get<Ids>(), text(words));
    EXPECT_EQ(tokens.at("count"), text(words).size());
    EXPECT_EQ(tokens.at("max_model_len"), 4096);
    EXPECT_EQ(tokens.at("token_strs").size(), text(words).size());
    EXPECT_EQ(post("/detokenize", {{"tokens", tokens.at("tokens")}})->json(),
              (Json{{"prompt", words}}));
    EXPECT_EQ(post("/tokenize", {{"content", "a"}})->json().at("tokens").get<Ids>(), text("a"));
}

TEST_F(Routes, tokenizes_a_conversation_as_chat_does) {
    service.scripts = {say("", "ok")};
    const Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                       {"chat_template_kwargs", {{"thinking", false}}}};
    chat(body);
    EXPECT_EQ(post("/tokenize", body)->json().at("tokens").get<Ids>(),
              service.submitted(0).request.prompt);
}

TEST_F(Routes, refuses_bad_token_requests) {
    EXPECT_EQ(post("/tokenize", Json::object())->json().at("error").at("param"), "prompt");
    EXPECT_EQ(post("/tokenize", {{"prompt", 5}})->response.status, 400);
    EXPECT_EQ(post("/tokenize", {{"messages", Json::array()}})->response.status, 400);
    EXPECT_EQ(post("/detokenize", {{"tokens", {1, 2304}}})->response.status, 400);
    EXPECT_EQ(post("/detokenize", {{"tokens", "x"}})->response.status, 400);
    EXPECT_EQ(call("POST", "/detokenize", "{")->response.status, 400);
    EXPECT_EQ(call("POST", "/tokenize", "")->response.status, 400);
}

TEST_F(Routes, tells_its_version) {
    EXPECT_EQ(call("GET", "/version")->json(), (Json{{"version", "test"}}));
}

// ---- health ----

TEST_F(Routes, health_is_ok_while_tokens_come) {
    service.reported = {true, {}, 2, 1, 0.5, 9.9, 77};
    for (const char* path : {"/health", "/ping"}) {
        const auto reply = call("GET", path);
        EXPECT_EQ(reply->response.status, 200);
        EXPECT_EQ(reply->json(), (Json{{"status", "ok"},
                                       {"state", "working"},
                                       {"running", 2},
                                       {"waiting", 1},
                                       {"kv_usage", 0.5},
                                       {"seconds_since_progress", 9.9},
                                       {"tokens_generated", 77}}));
    }
}

TEST_F(Routes, health_names_the_reason_when_nothing_is_accepted) {
    service.reported.accepts = false;
    service.reported.reason = "expert server spark-3 is gone";
    const auto reply = call("GET", "/health");
    EXPECT_EQ(reply->response.status, 503);
    EXPECT_EQ(reply->json().at("reason"), "expert server spark-3 is gone");
    EXPECT_EQ(reply->json().at("state"), "closed");
}

TEST_F(Routes, health_names_who_is_lost_while_requests_may_still_queue) {
    service.reported = {true, "waiting for spark-3 (is gone)", 0, 0, 0, 0};
    const auto idle = call("GET", "/health");
    EXPECT_EQ(idle->response.status, 503);
    EXPECT_EQ(idle->json().at("state"), "idle");
    EXPECT_EQ(idle->json().at("reason"), "waiting for spark-3 (is gone)");

    service.reported.num_running = 1;
    service.reported.seconds_since_progress = 3.3;
    service.reported.holding = "waiting for spark-3 for 3.2 s at layer 5";
    const auto held = call("GET", "/health");
    EXPECT_EQ(held->response.status, 503);
    EXPECT_EQ(held->json().at("state"), "holding, waiting for spark-3 for 3.2 s at layer 5");
    EXPECT_EQ(held->json().at("reason"),
              "a step is held, waiting for spark-3 for 3.2 s at layer 5; waiting for spark-3 (is "
              "gone)");
}

TEST_F(Routes, health_sees_work_without_progress) {
    service.reported = {true, {}, 1, 0, 0.5, 10.5};
    const auto reply = call("GET", "/health");
    EXPECT_EQ(reply->response.status, 503);
    EXPECT_EQ(reply->json().at("reason"),
              "no token progress for 10.5 s with 1 requests (limit 10.0 s)");
    service.reported = {true, {}, 0, 0, 0, 0};
    EXPECT_EQ(call("GET", "/health")->response.status, 200);
}

// ---- metrics ----

TEST_F(Routes, counts_requests_by_handler_method_and_class) {
    service.scripts = {say("", "ok")};
    chat();
    chat({{"stream", true}});
    chat({{"n", 0}});
    call("GET", "/v1/models/x/y");
    call("BREW", "/teapot/" + std::string(500, 'x'));
    const auto reply = call("GET", "/metrics");
    EXPECT_EQ(reply->response.content_type, "text/plain; version=0.0.4; charset=utf-8");
    const std::string text = reply->response.body;
    const auto line = [](const char* handler, const char* method, const char* status) {
        return std::string("http_requests_total{handler=\"") + handler + "\",method=\"" + method +
               "\",status=\"" + status + "\"} ";
    };
    EXPECT_THAT(text, HasSubstr(line("/v1/chat/completions", "POST", "2xx") + "2\n"));
    EXPECT_THAT(text, HasSubstr(line("/v1/chat/completions", "POST", "4xx") + "1\n"));
    EXPECT_THAT(text, HasSubstr(line("/v1/models", "GET", "4xx") + "1\n"));
    EXPECT_THAT(text, HasSubstr(line("other", "other", "4xx") + "1\n"));
    EXPECT_THAT(text,
                HasSubstr("http_request_duration_seconds_count{handler=\"/v1/chat/completions\","
                          "method=\"POST\"} 3\n"));
    EXPECT_EQ(text.find("teapot"), std::string::npos);
}

TEST_F(Routes, counts_choices_asked_for) {
    service.scripts = {say("", "ok")};
    chat({{"n", 3}});
    const std::string text = call("GET", "/metrics")->response.body;
    EXPECT_THAT(text, HasSubstr("vllm:request_params_n_bucket{engine=\"0\",model_name=\"k3-tiny\","
                                "le=\"2\"} 0\n"));
    EXPECT_THAT(text, HasSubstr("vllm:request_params_n_bucket{engine=\"0\",model_name=\"k3-tiny\","
                                "le=\"5\"} 1\n"));
}

// ---- an expert server's ----

std::shared_ptr<CapturedReply> ask_node(const HttpHandler& handler, const std::string& method,
                                        const std::string& path) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    const auto reply = std::make_shared<CapturedReply>();
    handler(std::move(request), reply);
    return reply;
}

TEST(NodeHandler, has_health_and_metrics_only) {
    MetricsRegistry metrics;
    metrics.counter("k3pod_experts_rows_total", "Rows.").add(3);
    Status health = unavailable("loading shards, 40 % done");
    const HttpHandler handler = make_node_handler(
        metrics, [&] { return health; }, [] { return R"({"status":"ok"})"; });
    const auto loading = ask_node(handler, "GET", "/health");
    EXPECT_EQ(loading->response.status, 503);
    EXPECT_EQ(loading->json().at("error").at("message"), "loading shards, 40 % done");
    health = Status::ok();
    EXPECT_EQ(ask_node(handler, "GET", "/health")->response.body, R"({"status":"ok"})");
    EXPECT_THAT(ask_node(handler, "GET", "/metrics")->response.body,
                HasSubstr("k3pod_experts_rows_total 3\n"));
    EXPECT_EQ(ask_node(handler, "GET", "/v1/models")->response.status, 404);
    const auto post = ask_node(handler, "POST", "/health");
    EXPECT_EQ(post->response.status, 405);
    EXPECT_EQ(post->header("Allow"), "GET, HEAD, OPTIONS");
    for (const char* path : {"/health", "*"}) {
        const auto options = ask_node(handler, "OPTIONS", path);
        EXPECT_EQ(options->response.status, 204);
        EXPECT_EQ(options->header("Allow"), "GET, HEAD, OPTIONS");
    }
}

}  // namespace
}  // namespace k3pod::testing

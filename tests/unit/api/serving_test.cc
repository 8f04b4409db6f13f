// The API behind the real HTTP server: clients that leave, silence, large bodies.

#include <dirent.h>
#include <gmock/gmock.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/support/raw_http_client.h"
#include "tests/unit/api/api_fixture.h"

namespace k3pod::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class Serving : public ApiTest {
  protected:
    void serve(HttpServerOptions options = {}) {
        options.listen = "127.0.0.1:0";
        auto started = HttpServer::start(options, [this](HttpRequest request, auto reply) {
            api->handle(std::move(request), std::move(reply));
        });
        ASSERT_TRUE(started.is_ok()) << started.status().to_string();
        server = std::move(started).value();
    }
    void TearDown() override { server.reset(); }

    static std::string chat_request(const Json& fields) {
        Json body = fields;
        body["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
        return http_request_text("POST", "/v1/chat/completions", body.dump());
    }

    std::unique_ptr<HttpServer> server;
};

int num_open_files() {
    int count = 0;
    DIR* folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
}

TEST_F(Serving, answers_over_a_socket) {
    service.scripts = {say("so", "It is 4.")};
    serve();
    RawHttpClient client(server->port());
    client.send(chat_request({}));
    client.send(chat_request({{"stream", true}}));
    EXPECT_EQ(
        Json::parse(client.read_response().body).at("choices").at(0).at("message").at("content"),
        "It is 4.");
    const RawResponse streamed = client.read_response();
    EXPECT_TRUE(streamed.is_complete);
    EXPECT_THAT(streamed.body, ::testing::EndsWith("data: [DONE]\n\n"));
}

TEST_F(Serving, cancels_when_the_client_leaves_in_any_phase) {
    serve();
    const auto ids = say("so", "It is 4.");
    size_t index = 0;
    for (const bool is_stream : {false, true}) {
        for (const size_t num_tokens : {0u, 5u}) {
            RawHttpClient client(server->port());
            client.send(chat_request({{"stream", is_stream}, {"n", 2}}));
            for (size_t choice = 0; choice < 2; ++choice) {
                const auto submitted = service.submitted(index + choice);
                ASSERT_TRUE(submitted.sink);
                for (size_t i = 0; i < num_tokens; ++i) submitted.sink->on_token(sampled(ids[i]));
            }
            if (is_stream) {
                EXPECT_EQ(client.read_head().status, 200);
            }
            client.close();
            for (size_t choice = 0; choice < 2; ++choice) {
                const auto submitted = service.submitted(index + choice);
                EXPECT_TRUE(service.wait_cancelled(submitted.handle));
                // A token under way must not end it as stopped: it counts as cancelled.
                EXPECT_TRUE(submitted.sink->on_token(sampled(ids[0])));
                submitted.sink->on_finish(FinishReason::kCancelled, Status::ok());
            }
            index += 2;
        }
    }
}

TEST_F(Serving, two_hundred_resets_leave_nothing_behind) {
    serve();
    const int files_before = num_open_files();
    const uint32_t seed = 7;
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::string request = chat_request({{"stream", true}});
    for (int i = 0; i < 200; ++i) {
        RawHttpClient client(server->port());
        client.send(std::string_view(request).substr(0, random() % (request.size() + 1)));
        if (random() % 2 == 0) {
            client.reset();
        } else {
            client.close();
        }
    }
    // Every request that got through is cancelled; a later one is answered as ever.
    const size_t num_requests = service.num_submitted();
    for (size_t i = 0; i < num_requests; ++i) {
        EXPECT_TRUE(service.wait_cancelled(service.submitted(i).handle)) << i;
    }
    EXPECT_EQ(http_call(server->port(), "GET", "/health").status, 200);
    server.reset();
    EXPECT_LE(num_open_files(), files_before);
}

TEST_F(Serving, comments_keep_a_silent_stream_alive) {
    create({.model_name = "k3-tiny", .sse_keepalive = 20ms});
    serve();
    RawHttpClient client(server->port());
    client.send(chat_request({{"stream", true}}));
    EXPECT_EQ(client.read_head().headers.at("content-type"), "text/event-stream");
    EXPECT_TRUE(client.read_until(": keep-alive\n\n"));
    EXPECT_TRUE(client.read_until(": keep-alive\n\n"));
    ScriptedService::play(service.submitted(0), say("", "at last"));
    EXPECT_TRUE(client.read_until("data: [DONE]\n\n"));
}

TEST_F(Serving, no_comments_when_they_are_turned_off) {
    create({.model_name = "k3-tiny", .sse_keepalive = 0ns});
    const auto reply = chat({{"stream", true}});
    create({.model_name = "k3-tiny", .sse_keepalive = 1ms});
    const auto other = std::make_shared<CapturedReply>();
    serve();
    RawHttpClient client(server->port());
    client.send(chat_request({{"stream", true}}));
    EXPECT_TRUE(client.read_until(": keep-alive\n\n"));
    EXPECT_EQ(reply->response.body, "");
}

TEST_F(Serving, a_million_equal_letters_do_not_stop_another_stream) {
    serve();
    RawHttpClient stream(server->port());
    stream.send(chat_request({{"stream", true}}));
    const auto streaming = service.submitted(0);
    ASSERT_TRUE(streaming.sink);
    std::atomic<bool> is_done = false;
    std::thread heavy([&] {
        for (const char* unit : {"a", "^", " ", "\n", "日", "🎉"}) {
            std::string words;
            for (int i = 0; i < 1'000'000; ++i) words += unit;
            const RawResponse response =
                http_call(server->port(), "POST", "/tokenize", Json{{"prompt", words}}.dump());
            EXPECT_EQ(response.status, 200) << unit;
        }
        is_done = true;
    });
    EXPECT_EQ(stream.read_head().status, 200);
    // Each token arrives while the other client is served.
    for (int i = 0; i < 3; ++i) {
        streaming.sink->on_token(sampled(text("x")[0]));
        EXPECT_TRUE(stream.read_until("reasoning_content"));
    }
    heavy.join();
    EXPECT_TRUE(is_done);
}

TEST_F(Serving, refuses_a_prompt_far_beyond_the_context_without_tokenizing_it) {
    serve();
    const std::string body =
        Json{{"messages", {{{"role", "user"}, {"content", std::string(30 << 20, 'a')}}}}}.dump();
    const RawResponse response = http_call(server->port(), "POST", "/v1/chat/completions", body);
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(response.body, HasSubstr("context_length_exceeded"));
    EXPECT_THAT(response.body, HasSubstr("at least"));
}

TEST_F(Serving, head_of_health_has_no_body) {
    serve();
    RawHttpClient client(server->port());
    client.send("HEAD /health HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(client.read_head().status, 200);
    client.send("GET /ping HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(client.read_response().status, 200);
}

}  // namespace
}  // namespace k3pod::testing

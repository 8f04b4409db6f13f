#include "k3pod/api/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "tests/support/raw_http_client.h"

namespace k3pod {
namespace {

using ::testing::HasSubstr;
using testing::RawHttpClient;
using testing::RawResponse;
using namespace std::chrono_literals;
constexpr auto kDeadline = 10s;

// A flag that another thread sets.
class Event {
  public:
    void set() {
        const std::lock_guard lock(mutex_);
        is_set_ = true;
        changed_.notify_all();
    }
    bool wait() {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kDeadline, [this] { return is_set_; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_set_ = false;
};

struct Call {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;
};

// A server whose handler hands every request to the test.
class Fixture : public ::testing::Test {
  protected:
    void start(HttpServerOptions options = {}) {
        options.listen = "127.0.0.1:0";
        auto server = HttpServer::start(options, [this](HttpRequest request, auto reply) {
            const std::lock_guard lock(mutex_);
            calls_.push_back({std::move(request), std::move(reply)});
            changed_.notify_all();
        });
        ASSERT_TRUE(server.is_ok()) << server.status().to_string();
        server_ = std::move(server).value();
        port_ = server_->port();
    }

    Call next_call() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, kDeadline, [this] { return !calls_.empty(); })) {
            ADD_FAILURE() << "no request reached the handler";
            return {};
        }
        Call call = std::move(calls_.front());
        calls_.pop_front();
        return call;
    }

    std::unique_ptr<HttpServer> server_;
    int port_ = 0;

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Call> calls_;
};

using HttpServerTest = Fixture;

HttpResponse text(std::string body) {
    return {.content_type = "text/plain", .body = std::move(body)};
}

TEST_F(HttpServerTest, hands_over_request_and_sends_the_answer) {
    start();
    RawHttpClient client(port_);
    client.send("POST /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nX-Key: v\r\nContent-Length: 3\r\n\r\nabc");
    const Call call = next_call();
    EXPECT_EQ(call.request.method, "POST");
    EXPECT_EQ(call.request.path, "/a b");
    EXPECT_EQ(call.request.query, "x=1");
    EXPECT_EQ(call.request.body, "abc");
    EXPECT_EQ(call.request.header("x-KEY"), "v");
    EXPECT_EQ(call.request.header("absent"), "");
    call.reply->send(text("hello"));
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "hello");
    EXPECT_EQ(response.headers.at("content-type"), "text/plain");
}

TEST_F(HttpServerTest, leaves_out_the_slash_at_the_end_of_a_path) {
    start();
    RawHttpClient client(port_);
    const std::pair<std::string, std::string> paths[] = {
        {"/v1/models/", "/v1/models"}, {"/", "/"}, {"/a%2F?x=/", "/a"}, {"*", "*"}};
    for (const auto& [target, path] : paths) {
        client.send("OPTIONS " + target + " HTTP/1.1\r\nHost: h\r\n\r\n");
        const Call call = next_call();
        EXPECT_EQ(call.request.path, path);
        call.reply->send(text("done"));
        EXPECT_EQ(client.read_response().status, 200);
    }
}

TEST_F(HttpServerTest, keeps_the_connection_and_answers_pipelined_requests_in_order) {
    start();
    RawHttpClient client(port_);
    client.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send("GET /3 HTTP/1.1\r\nHost: h\r\n\r\n");
    for (const std::string path : {"/1", "/2", "/3"}) {
        const Call call = next_call();
        EXPECT_EQ(call.request.path, path);
        call.reply->send(text("answer to " + path));
        EXPECT_EQ(client.read_response().body, "answer to " + path);
    }
}

TEST_F(HttpServerTest, closes_after_the_answer_when_asked) {
    start();
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    next_call().reply->send(text("bye"));
    EXPECT_EQ(client.read_response().headers.at("connection"), "close");
    EXPECT_TRUE(client.is_closed_by_server());
}

TEST_F(HttpServerTest, streams_pieces_as_chunks_and_keeps_the_connection) {
    start();
    RawHttpClient client(port_);
    client.send("GET /s HTTP/1.1\r\nHost: h\r\n\r\n");
    const Call call = next_call();
    call.reply->begin_stream(text(""));
    const RawResponse head = client.read_head();
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.headers.at("transfer-encoding"), "chunked");
    call.reply->write("one");
    EXPECT_EQ(client.read_until("\r\none\r\n"), "3\r\none\r\n");
    call.reply->write("0123456789abcdef");
    EXPECT_EQ(client.read_until("f\r\n"), "10\r\n0123456789abcdef\r\n");
    call.reply->end();
    EXPECT_EQ(client.read_until("\r\n\r\n"), "0\r\n\r\n");
    client.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(next_call().request.path, "/next");
}

TEST_F(HttpServerTest, speaks_http_1_0_without_chunks) {
    start();
    RawHttpClient client(port_);
    client.send("GET /s HTTP/1.0\r\n\r\n");
    const Call call = next_call();
    call.reply->begin_stream(text(""));
    call.reply->write("plain");
    call.reply->end();
    const RawResponse head = client.read_head();
    EXPECT_EQ(head.headers.count("transfer-encoding"), 0u);
    EXPECT_EQ(client.read_until("plain"), "plain");
    EXPECT_TRUE(client.is_closed_by_server());
}

TEST_F(HttpServerTest, answers_head_without_a_body) {
    start();
    RawHttpClient client(port_);
    client.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
    next_call().reply->send(text("hello"));
    EXPECT_EQ(client.read_head().headers.at("content-length"), "5");
    next_call().reply->send(text("second"));
    EXPECT_EQ(client.read_response().body, "second");
}

TEST_F(HttpServerTest, takes_chunked_request_bodies) {
    start();
    RawHttpClient client(port_);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.send("2\r\nde\r\n0\r\n\r\n");
    EXPECT_EQ(next_call().request.body, "abcde");
}

TEST_F(HttpServerTest, says_continue_to_a_client_that_waits_for_it) {
    start();
    RawHttpClient client(port_);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("ab");
    const Call call = next_call();
    EXPECT_EQ(call.request.body, "ab");
    call.reply->send(text("done"));
    EXPECT_EQ(client.read_response().body, "done");
}

// ---- refusals ----

TEST_F(HttpServerTest, refuses_a_body_over_the_limit_before_reading_it) {
    start({.max_body_bytes = 1000});
    RawHttpClient client(port_);
    client.send(
        "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 413);
    EXPECT_THAT(response.body, HasSubstr("larger than the limit of 1000 bytes"));
    EXPECT_THAT(response.body, HasSubstr("\"type\":\"invalid_request_error\""));
}

TEST_F(HttpServerTest, a_client_that_sends_a_large_body_first_still_gets_its_413) {
    start({.max_body_bytes = 1000});
    RawHttpClient client(port_);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000000\r\n\r\n");
    EXPECT_TRUE(client.send(std::string(20'000'000, 'x')));
    EXPECT_EQ(client.read_response().status, 413);
}

TEST_F(HttpServerTest, refuses_a_chunked_body_over_the_limit) {
    start({.max_body_bytes = 10});
    RawHttpClient client(port_);
    client.send(
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n");
    EXPECT_EQ(client.read_response().status, 413);
}

TEST_F(HttpServerTest, refuses_a_header_over_the_limit) {
    start({.max_header_bytes = 1024});
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\nX-Long: " + std::string(2000, 'x'));
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 431);
    EXPECT_THAT(response.body, HasSubstr("limit of 1024 bytes"));
}

TEST_F(HttpServerTest, refuses_a_chunk_header_without_end) {
    start({.max_header_bytes = 1024});
    RawHttpClient client(port_);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=");
    client.send(std::string(100'000, 'x'));
    EXPECT_EQ(client.read_response().status, 431);
}

TEST_F(HttpServerTest, refuses_what_is_not_http) {
    start();
    for (const std::string bytes :
         {"hello\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03",
          "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
          "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
        RawHttpClient client(port_);
        client.send(bytes);
        const RawResponse response = client.read_response();
        EXPECT_EQ(response.status, 400) << bytes;
        EXPECT_THAT(response.body, HasSubstr("not valid HTTP/1.1"));
        EXPECT_TRUE(client.is_closed_by_server());
    }
    RawHttpClient client(port_);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 505);
    EXPECT_THAT(response.body, HasSubstr("\"type\":\"invalid_request_error\""));
}

TEST_F(HttpServerTest, refuses_expectations_that_it_does_not_know) {
    start();
    RawHttpClient client(port_);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\nContent-Length: 2\r\n\r\n");
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 417);
    EXPECT_THAT(response.body, HasSubstr("200-ok"));
    EXPECT_TRUE(client.is_closed_by_server());
    // HTTP/1.0 has no expectations, and its clients do not wait for "100 Continue".
    RawHttpClient old(port_);
    old.send("POST / HTTP/1.0\r\nExpect: 200-ok\r\nContent-Length: 2\r\n\r\nab");
    EXPECT_EQ(next_call().request.body, "ab");
}

TEST_F(HttpServerTest, refuses_head_without_a_body) {
    start();
    RawHttpClient client(port_);
    client.send("HEAD / HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\n\r\n");
    EXPECT_EQ(client.read_head().status, 417);
    EXPECT_TRUE(client.is_closed_by_server());
}

TEST_F(HttpServerTest, tells_a_slow_client_that_its_header_or_body_did_not_come) {
    start({.header_timeout = 50ms, .body_timeout = 50ms});
    RawHttpClient slow_header(port_), slow_body(port_);
    slow_header.send("GET / HTTP/1.1\r\nHost:");
    slow_body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    const RawResponse no_header = slow_header.read_response();
    EXPECT_EQ(no_header.status, 408);
    EXPECT_THAT(no_header.body, HasSubstr("the request's header did not arrive"));
    const RawResponse no_body = slow_body.read_response();
    EXPECT_EQ(no_body.status, 408);
    EXPECT_THAT(no_body.body, HasSubstr("the request's next body bytes did not arrive"));
}

TEST_F(HttpServerTest, closes_idle_connections_without_a_word) {
    start({.idle_timeout = 50ms});
    RawHttpClient client(port_);
    EXPECT_TRUE(client.is_closed_by_server());
}

TEST_F(HttpServerTest, refuses_connections_over_the_limit_and_takes_new_ones_when_there_is_room) {
    start({.max_connections = 1});
    auto first = std::make_unique<RawHttpClient>(port_);
    first->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    Call call = next_call();
    const RawResponse refused = testing::http_call(port_, "GET", "/");
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.headers.at("retry-after"), "1");
    Event gone;
    call.reply->on_disconnect([&] { gone.set(); });
    first.reset();
    ASSERT_TRUE(gone.wait());
    RawHttpClient second(port_);
    second.send("GET /room HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(next_call().request.path, "/room");
}

TEST_F(HttpServerTest, names_an_address_that_is_taken) {
    start();
    const std::string address = "127.0.0.1:" + std::to_string(port_);
    const auto second = HttpServer::start({.listen = address}, [](HttpRequest, auto) {});
    ASSERT_FALSE(second.is_ok());
    EXPECT_EQ(second.status().code(), Code::kUnavailable);
    EXPECT_THAT(second.status().message(), HasSubstr("cannot listen on " + address));
    EXPECT_THAT(second.status().message(), HasSubstr("in use"));
}

TEST_F(HttpServerTest, tells_an_address_of_another_machine_from_a_host_that_there_is_not) {
    const auto foreign = HttpServer::start({.listen = "192.0.2.1:0"}, [](HttpRequest, auto) {});
    EXPECT_THAT(foreign.status().message(), HasSubstr("no interface of this machine"));
    const auto unknown = HttpServer::start({.listen = "no..host:0"}, [](HttpRequest, auto) {});
    EXPECT_THAT(unknown.status().message(), HasSubstr("cannot listen on no..host:0: no such host"));
}

TEST_F(HttpServerTest, names_an_address_that_is_none) {
    for (const std::string address : {"", "8000", "localhost", "localhost:", "h:99999", "h:8x"}) {
        const auto server = HttpServer::start({.listen = address}, [](HttpRequest, auto) {});
        ASSERT_FALSE(server.is_ok()) << address;
        EXPECT_EQ(server.status().code(), Code::kInvalidArgument);
        EXPECT_THAT(server.status().message(), HasSubstr("'" + address + "'"));
    }
}

// ---- clients that go away ----

TEST_F(HttpServerTest, notices_a_close_while_the_answer_is_pending) {
    start();
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    const Call call = next_call();
    Event gone;
    call.reply->on_disconnect([&] { gone.set(); });
    client.close();
    EXPECT_TRUE(gone.wait());
    call.reply->send(text("nobody reads this"));
}

TEST_F(HttpServerTest, notices_a_reset_while_streaming) {
    start();
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    const Call call = next_call();
    Event gone;
    call.reply->on_disconnect([&] { gone.set(); });
    call.reply->begin_stream(text(""));
    call.reply->write("one");
    ASSERT_TRUE(client.read_until("one"));
    client.reset();
    EXPECT_TRUE(gone.wait());
    call.reply->write("two");
    call.reply->end();
}

TEST_F(HttpServerTest, notices_a_close_behind_pipelined_bytes) {
    start();
    RawHttpClient client(port_);
    client.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
    const Call call = next_call();
    Event gone;
    call.reply->on_disconnect([&] { gone.set(); });
    client.close();
    EXPECT_TRUE(gone.wait());
}

TEST_F(HttpServerTest, tells_at_once_when_the_client_had_already_gone) {
    start();
    Call call;
    {
        RawHttpClient client(port_);
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        call = next_call();
        Event gone;
        call.reply->on_disconnect([&] { gone.set(); });
        client.close();
        ASSERT_TRUE(gone.wait());
    }
    bool told = false;
    call.reply->on_disconnect([&] { told = true; });
    EXPECT_TRUE(told);
}

TEST_F(HttpServerTest, does_not_report_a_close_after_the_whole_answer) {
    start();
    bool told = false;
    {
        RawHttpClient client(port_);
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        const Call call = next_call();
        call.reply->on_disconnect([&] { told = true; });
        call.reply->send(text("all"));
        EXPECT_EQ(client.read_response().body, "all");
    }
    server_.reset();
    EXPECT_FALSE(told);
}

TEST_F(HttpServerTest, drops_a_client_that_never_reads_a_stream) {
    start({.max_unsent_bytes = 1 << 20});
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    const Call call = next_call();
    Event gone;
    call.reply->on_disconnect([&] { gone.set(); });
    call.reply->begin_stream(text(""));
    // More than the socket's buffers hold, so that this write is stuck when the rest comes.
    call.reply->write(std::string(32 << 20, 'x'));
    ASSERT_TRUE(client.read_until("2000000\r\n"));
    for (int i = 0; i < 10; ++i) call.reply->write(std::string(1 << 20, 'y'));
    EXPECT_TRUE(gone.wait());
}

TEST_F(HttpServerTest, drops_a_client_that_takes_no_byte_for_the_write_timeout) {
    start({.write_timeout = 50ms});
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    next_call().reply->send(text(std::string(64 << 20, 'x')));
    // Only after the server gave up does the client read: what was under way, and then the end.
    RawHttpClient other(port_);
    other.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    const Call call = next_call();
    Event gone;
    call.reply->on_disconnect([&] { gone.set(); });
    call.reply->begin_stream(text(""));
    call.reply->write(std::string(64 << 20, 'x'));
    EXPECT_TRUE(gone.wait());
    EXPECT_FALSE(client.read_response().is_complete);
}

TEST_F(HttpServerTest, survives_connections_reset_at_any_moment) {
    start();
    const std::string request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
    for (size_t length = 0; length < request.size(); ++length) {
        RawHttpClient client(port_);
        client.send(std::string_view(request).substr(0, length));
        client.reset();
    }
    RawHttpClient client(port_);
    client.send("GET /alive HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(next_call().request.path, "/alive");
}

// ---- handlers that fail, and the end ----

TEST_F(HttpServerTest, answers_500_when_the_reply_is_dropped) {
    start();
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    next_call().reply.reset();
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 500);
    EXPECT_THAT(response.body, HasSubstr("server_error"));
}

TEST_F(HttpServerTest, cuts_the_stream_when_the_reply_is_dropped_in_the_middle) {
    start();
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    Call call = next_call();
    call.reply->begin_stream(text(""));
    call.reply.reset();
    EXPECT_FALSE(client.read_response().is_complete);
}

TEST(HttpServer, answers_500_when_the_handler_throws) {
    auto server = HttpServer::start({.listen = "127.0.0.1:0"},
                                    [](HttpRequest, auto) { throw std::runtime_error("boom"); });
    ASSERT_TRUE(server.is_ok());
    EXPECT_EQ(testing::http_call((*server)->port(), "GET", "/").status, 500);
}

TEST(HttpServer, answers_probes_while_every_worker_is_busy) {
    Event is_busy, may_end;
    auto server = HttpServer::start({.listen = "127.0.0.1:0", .num_workers = 1},
                                    [&](const HttpRequest& request, const auto& reply) {
                                        if (request.method == "POST") {
                                            is_busy.set();
                                            may_end.wait();
                                        }
                                        reply->send(text(request.path));
                                    });
    ASSERT_TRUE(server.is_ok());
    RawHttpClient client((*server)->port());
    client.send("POST /prompt HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    ASSERT_TRUE(is_busy.wait());
    EXPECT_EQ(testing::http_call((*server)->port(), "GET", "/health").body, "/health");
    may_end.set();
    EXPECT_EQ(client.read_response().body, "/prompt");
}

TEST_F(HttpServerTest, lets_an_answer_under_way_end_when_it_stops) {
    start({.close_grace = 100ms});
    RawHttpClient busy(port_), idle(port_);
    busy.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    const Call call = next_call();
    call.reply->send(text("last words"));
    server_.reset();
    EXPECT_EQ(busy.read_response().body, "last words");
    EXPECT_TRUE(busy.is_closed_by_server());
    EXPECT_TRUE(idle.is_closed_by_server());
}

TEST_F(HttpServerTest, cuts_an_endless_answer_when_the_grace_is_over) {
    start({.close_grace = 20ms});
    RawHttpClient client(port_);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    const Call call = next_call();
    bool told = false;
    call.reply->on_disconnect([&] { told = true; });
    call.reply->begin_stream(text(""));
    server_.reset();
    EXPECT_TRUE(told);
    call.reply->write("after the end");
    call.reply->end();
}

}  // namespace
}  // namespace k3pod

#pragma once
// A small HTTP/1.1 server on one I/O thread plus workers (Boost.Beast inside). It exists because a
// client that goes away must cancel its request in every phase: the connection is watched while a
// handler's answer is pending, streaming or not. Only POST brings work (prompts of megabytes are
// tokenised in its handler), so every other method has a worker of its own: probes and scrapes are
// answered at once, however many prompts are being built.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"

namespace k3pod {

struct HttpRequest {
    // The path is decoded, without the query and without a slash at its end; "*" is the server.
    std::string method, path, query, body;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string_view header(std::string_view name) const;  // case-insensitive, empty when absent
};

struct HttpResponse {
    int status = 200;
    std::string content_type = "application/json";
    std::string body{};
    std::vector<std::pair<std::string, std::string>> headers{};
};

// How a handler answers, at once or later. Any thread; no method blocks, and every method is safe
// after the client left. Exactly one of send() or begin_stream()...end() per request; what follows
// is ignored. Dropping the reply without an answer gives the client a 500, or a cut stream.
class HttpReply {
  public:
    virtual ~HttpReply() = default;
    virtual void send(HttpResponse response) = 0;
    // Chunked body. Headers go out at once.
    virtual void begin_stream(HttpResponse head) = 0;
    virtual void write(std::string piece) = 0;
    virtual void end() = 0;
    // Called once, when the client goes away before the answer is complete (at once if it already
    // has). A client counts as gone when it closes its end or only the sending half of it, when it
    // takes no byte for write_timeout, and when more than max_unsent_bytes wait for it.
    virtual void on_disconnect(std::function<void()> callback) = 0;
};

struct HttpServerOptions {
    std::string listen{};                 // host:port, [v6]:port; port 0: any
    int64_t max_body_bytes = 64 << 20;    // 413 beyond
    int32_t max_header_bytes = 32 << 10;  // 431 beyond
    int32_t max_connections = 1024;       // beyond: 503 and close
    int32_t num_workers = 4;              // handlers of POST run there; one more does the rest
    int64_t max_unsent_bytes = 8 << 20;   // of one stream, waiting for a client that reads slowly
    Nanoseconds header_timeout{std::chrono::seconds(30)};  // whole header; 408 after
    Nanoseconds body_timeout{std::chrono::seconds(30)};    // between two reads of a body; 408 after
    Nanoseconds idle_timeout{std::chrono::seconds(75)};    // between two requests
    Nanoseconds write_timeout{std::chrono::seconds(30)};   // without a byte being taken
    Nanoseconds close_grace{std::chrono::seconds(1)};      // for answers under way when it stops
};

using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)>;

class HttpServer {
  public:
    // Closes the listener and idle connections, lets answers under way end within close_grace,
    // closes the rest, and waits for handlers that run.
    virtual ~HttpServer() = default;
    // Listens before it returns. kInvalidArgument: the address is not host:port. kUnavailable names
    // the address and why it cannot be had.
    static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options,
                                                     HttpHandler handler);
    virtual int port() const = 0;
};

}  // namespace k3pod

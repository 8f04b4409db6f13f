#pragma once
// A blocking HTTP client that sends exactly the bytes it is told to, for tests of a server's edges.

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace k3pod::testing {

struct RawResponse {
    int status = 0;
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;                            // chunks joined
    bool is_complete = false;  // false: the connection ended or the deadline passed before the end
};

class RawHttpClient {
  public:
    // Connects to 127.0.0.1. Every call below gives up 10 s after it began.
    explicit RawHttpClient(int port);
    ~RawHttpClient();
    RawHttpClient(const RawHttpClient&) = delete;
    RawHttpClient& operator=(const RawHttpClient&) = delete;

    // False when the server does not take the bytes.
    bool send(std::string_view bytes);
    // One whole response; further bytes stay for the next call.
    RawResponse read_response();
    // Status and headers only; read_until then gives the body's bytes as they are on the wire.
    RawResponse read_head();
    // What came up to and with `mark`; nullopt at the end of the connection.
    std::optional<std::string> read_until(std::string_view mark);
    // True when the server closed and nothing is left to read.
    bool is_closed_by_server();

    void close();
    void close_sending_half();
    // Ends with a reset in place of an orderly close.
    void reset();

  private:
    bool receive();

    int fd_ = -1;
    std::string inbox_;
};

// One request with a Content-Length, on its own connection.
RawResponse http_call(int port, std::string_view method, std::string_view path,
                      std::string_view body = {}, std::string_view extra_headers = {});

// The text of such a request.
std::string http_request_text(std::string_view method, std::string_view path, std::string_view body,
                              std::string_view extra_headers = {});

}  // namespace k3pod::testing

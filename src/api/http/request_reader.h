#pragma once
// Bytes of one connection to whole requests, by Beast's parser. No sockets and no clocks: fed by
// hand.

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "api/error_body.h"
#include "k3pod/api/http_server.h"

namespace k3pod {

class RequestReader {
  public:
    enum class State {
        kIdle,      // between two requests
        kHeader,    // a header has begun
        kBody,      // the header is complete, the body is not
        kComplete,  // take() it
        kRefused,   // error() says why; the connection cannot go on
    };

    RequestReader(int32_t max_header_bytes, int64_t max_body_bytes);

    // Bytes behind the end of a request are kept for the next one.
    void append(std::string_view bytes) { inbox_ += bytes; }
    size_t num_buffered() const { return inbox_.size(); }
    void discard() { inbox_.clear(); }

    // Goes as far as the bytes allow.
    State parse();
    State state() const { return state_; }
    const ApiError& error() const { return error_; }

    // Once per request, when its header is there and the client waits for "100 Continue".
    bool take_expects_continue();
    HttpRequest take();

    // Of the request taken last.
    bool keep_alive() const { return keep_alive_; }
    bool is_http_1_0() const { return is_http_1_0_; }
    // Of the request whose header was read last, refused or not.
    bool is_head() const { return is_head_; }

  private:
    using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

    void begin();
    // Each false with error_ set.
    bool has_sound_framing();
    bool has_known_expectations();
    State refuse(boost::beast::error_code error);

    const int32_t max_header_bytes_;
    const int64_t max_body_bytes_;
    State state_ = State::kIdle;
    std::string inbox_;
    std::optional<Parser> parser_;
    ApiError error_;
    bool expects_continue_ = false;
    bool keep_alive_ = false;
    bool is_http_1_0_ = false;
    bool is_head_ = false;
};

// %41 to A. False when a percent sign is not followed by two hex digits.
bool percent_decode(std::string_view text, std::string& decoded);

}  // namespace k3pod

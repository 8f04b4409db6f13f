#include "request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <utility>

namespace k3pod {

namespace beast = boost::beast;
namespace http = beast::http;

namespace {

std::string_view to_view(beast::string_view text) {
    return {text.data(), text.size()};
}

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// The path and query of a request target, which may be a whole URL.
std::string_view origin_form(std::string_view target) {
    constexpr std::string_view kScheme = "http://";
    if (target.substr(0, kScheme.size()) != kScheme) return target;
    const size_t slash = target.find('/', kScheme.size());
    return slash == std::string_view::npos ? "/" : target.substr(slash);
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
        if (beast::iequals({key.data(), key.size()}, {name.data(), name.size()})) return value;
    }
    return {};
}

bool percent_decode(std::string_view text, std::string& decoded) {
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i];
            continue;
        }
        if (i + 2 >= text.size()) return false;
        const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
        if (high < 0 || low < 0) return false;
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return true;
}

RequestReader::RequestReader(int32_t max_header_bytes, int64_t max_body_bytes)
    : max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {}

void RequestReader::begin() {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(static_cast<uint32_t>(max_header_bytes_));
    parser_->body_limit(static_cast<uint64_t>(max_body_bytes_));
    state_ = State::kHeader;
    is_head_ = false;
}

RequestReader::State RequestReader::parse() {
    if (state_ == State::kComplete || state_ == State::kRefused) return state_;
    if (inbox_.empty()) return state_;
    if (state_ == State::kIdle) begin();

    beast::error_code error;
    const size_t used = parser_->put(boost::asio::buffer(std::as_const(inbox_)), error);
    inbox_.erase(0, used);
    if (error == http::error::need_more) error = {};
    if (error) return refuse(error);
    if (state_ == State::kHeader && parser_->is_header_done()) {
        is_head_ = parser_->get().method() == http::verb::head;
        if (!has_sound_framing() || !has_known_expectations()) return state_ = State::kRefused;
        state_ = State::kBody;
    }
    if (parser_->is_done()) return state_ = State::kComplete;
    // What the parser leaves is a header or a chunk's header that has not ended.
    if (inbox_.size() > static_cast<size_t>(max_header_bytes_)) {
        return refuse(http::error::header_limit);
    }
    return state_;
}

// A proxy in front of us must never see another end of this request, or another host, than we do
// (RFC 9112, sections 3.2 and 6.1).
bool RequestReader::has_sound_framing() {
    const auto& header = parser_->get();
    const auto codings = header.equal_range(http::field::transfer_encoding);
    for (auto field = codings.first; field != codings.second; ++field) {
        if (beast::iequals(field->value(), "chunked")) continue;
        error_ = {.status = 501,
                  .message = fmt::format("Transfer-Encoding \"{:.40}\" is not supported; send the "
                                         "body chunked or with a Content-Length",
                                         to_view(field->value()))};
        return false;
    }
    const auto num_hosts = header.count(http::field::host);
    if (num_hosts > 1 || (num_hosts == 0 && header.version() >= 11)) {
        error_ = {.status = 400,
                  .message = fmt::format("the request has {} Host fields; send one", num_hosts)};
        return false;
    }
    return true;
}

// RFC 9110, section 10.1.1; HTTP/1.0 knows no expectations.
bool RequestReader::has_known_expectations() {
    const auto& header = parser_->get();
    if (header.version() < 11) return true;
    const auto expectations = header.equal_range(http::field::expect);
    for (auto field = expectations.first; field != expectations.second; ++field) {
        expects_continue_ = !parser_->is_done();
        if (beast::iequals(field->value(), "100-continue")) continue;
        error_ = {
            .status = 417,
            .message = fmt::format("Expect: \"{:.40}\" is not supported, only 100-continue is; "
                                   "leave the header out",
                                   to_view(field->value()))};
        return false;
    }
    return true;
}

RequestReader::State RequestReader::refuse(beast::error_code error) {
    if (error == http::error::header_limit) {
        error_ = {
            .status = 431,
            .message = fmt::format("the request's header is larger than the limit of {} bytes",
                                   max_header_bytes_)};
    } else if (error == http::error::body_limit || error == http::error::buffer_overflow) {
        error_ = {.status = 413,
                  .message = fmt::format("the request's body is larger than the limit of {} bytes; "
                                         "send a shorter prompt or raise max_body in [station]",
                                         max_body_bytes_)};
    } else if (error == http::error::bad_version) {
        error_ = {.status = 505, .message = "this server speaks HTTP/1.1 and HTTP/1.0 only"};
    } else {
        error_ = {.status = 400,
                  .message = fmt::format("the request is not valid HTTP/1.1: {}", error.message())};
    }
    return state_ = State::kRefused;
}

bool RequestReader::take_expects_continue() {
    return std::exchange(expects_continue_, false);
}

HttpRequest RequestReader::take() {
    http::request<http::string_body> message = parser_->release();
    parser_.reset();
    state_ = State::kIdle;
    keep_alive_ = message.keep_alive();
    is_http_1_0_ = message.version() < 11;

    HttpRequest request;
    request.method = std::string(to_view(message.method_string()));
    for (const auto& field : message) {
        request.headers.emplace_back(to_view(field.name_string()), to_view(field.value()));
    }
    const std::string_view target = origin_form(to_view(message.target()));
    const size_t mark = target.find('?');
    // A path that cannot be decoded is kept as it came and matches no route.
    if (!percent_decode(target.substr(0, mark), request.path))
        request.path = target.substr(0, mark);
    if (request.path.size() > 1 && request.path.back() == '/') request.path.pop_back();
    if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
    request.body = std::move(message.body());
    return request;
}

}  // namespace k3pod

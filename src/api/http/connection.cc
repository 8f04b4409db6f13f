#include "connection.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/status.hpp>
#include <utility>

namespace k3pod {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// A client may send requests ahead; beyond this its next bytes stay in the kernel.
constexpr size_t kMaxPipelinedBytes = 64 << 10;
// A client that still sends when the last answer is out would get a reset in place of it.
constexpr Nanoseconds kLingerLimit = std::chrono::seconds(5);

std::string_view reason_of(int status) {
    const auto text = boost::beast::http::obsolete_reason(
        boost::beast::http::int_to_status(static_cast<unsigned>(status)));
    return {text.data(), text.size()};
}

bool has_no_body(int status) {
    return status < 200 || status == 204 || status == 304;
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, Host& host)
    : host_(host),
      socket_(std::move(socket)),
      read_deadline_(socket_.get_executor()),
      write_deadline_(socket_.get_executor()),
      reader_(host.options.max_header_bytes, host.options.max_body_bytes) {
    error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
}

void Connection::start() {
    arm_read_deadline();
    read_more();
}

// ---- reading ----

void Connection::read_more() {
    if (is_reading_ || phase_ == Phase::kClosed) return;
    if (phase_ == Phase::kAnswering && reader_.num_buffered() >= kMaxPipelinedBytes) return;
    is_reading_ = true;
    socket_.async_read_some(asio::buffer(chunk_),
                            [self = shared_from_this()](error_code error, size_t num_bytes) {
                                self->on_read(error, num_bytes);
                            });
}

void Connection::on_read(error_code error, size_t num_bytes) {
    is_reading_ = false;
    if (phase_ == Phase::kClosed) return;
    // A complete answer still goes out to a client that closed only its sending half.
    if (error && phase_ == Phase::kAnswering && is_answer_complete_) return;
    if (error) return close();
    if (phase_ != Phase::kLingering) reader_.append({chunk_.data(), num_bytes});
    if (phase_ == Phase::kReading) return parse();
    read_more();
}

void Connection::parse() {
    switch (reader_.parse()) {
        case RequestReader::State::kComplete:
            return dispatch();
        case RequestReader::State::kRefused:
            return refuse(reader_.error());
        case RequestReader::State::kIdle:
        case RequestReader::State::kHeader:
        case RequestReader::State::kBody:
            break;
    }
    if (reader_.take_expects_continue()) {
        outbox_ += "HTTP/1.1 100 Continue\r\n\r\n";
        write_more();
    }
    arm_read_deadline();
    read_more();
}

// A header has one deadline from its first byte; a body gets a new one with every read.
void Connection::arm_read_deadline() {
    const RequestReader::State state = reader_.state();
    if (state == timed_state_ && state != RequestReader::State::kBody) return;
    timed_state_ = state;
    const HttpServerOptions& options = host_.options;
    const Nanoseconds delay = state == RequestReader::State::kIdle     ? options.idle_timeout
                              : state == RequestReader::State::kHeader ? options.header_timeout
                                                                       : options.body_timeout;
    arm(read_deadline_, delay, &Connection::on_read_deadline);
}

void Connection::on_read_deadline() {
    if (phase_ == Phase::kLingering || timed_state_ == RequestReader::State::kIdle) return close();
    if (phase_ != Phase::kReading) return;
    const bool in_header = timed_state_ == RequestReader::State::kHeader;
    refuse({.status = 408,
            .message = fmt::format("the request's {} did not arrive within {:.0f} s",
                                   in_header ? "header" : "next body bytes",
                                   to_seconds(in_header ? host_.options.header_timeout
                                                        : host_.options.body_timeout))});
}

void Connection::dispatch() {
    phase_ = Phase::kAnswering;
    timed_state_ = RequestReader::State::kComplete;
    read_deadline_.cancel();
    HttpRequest request = reader_.take();
    keep_alive_ = reader_.keep_alive() && !is_draining_;
    is_answer_complete_ = false;
    auto wake = [weak = weak_from_this(), executor = socket_.get_executor()] {
        asio::post(executor, [weak] {
            if (const auto self = weak.lock()) self->flush();
        });
    };
    box_ = std::make_shared<ReplyBox>(host_.options.max_unsent_bytes, std::move(wake));
    host_.dispatch(std::move(request), box_);
    read_more();
}

// ---- writing ----

void Connection::refuse(const ApiError& error) {
    phase_ = Phase::kAnswering;
    keep_alive_ = false;
    is_answer_complete_ = true;
    const HttpResponse response = error_response(error);
    queue_head(response, false, response.body.size());
    if (!reader_.is_head()) outbox_ += response.body;
    write_more();
    read_more();
}

void Connection::flush() {
    if (!box_ || phase_ != Phase::kAnswering) return;
    if (box_->is_broken()) return close();
    is_flush_wanted_ = is_writing_;
    if (is_writing_) return;
    queue_output(box_->take());
    write_more();
}

void Connection::queue_output(ReplyBox::Output output) {
    is_answer_complete_ = output.is_complete;
    if (output.head) queue_head(*output.head, output.is_stream, output.body.size());
    if (reader_.is_head()) return;
    const bool is_chunked = output.is_stream && !reader_.is_http_1_0();
    if (!is_chunked) {
        outbox_ += output.body;
        return;
    }
    if (!output.body.empty()) {
        outbox_ += fmt::format("{:x}\r\n", output.body.size());
        outbox_ += output.body;
        outbox_ += "\r\n";
    }
    if (output.is_complete) outbox_ += "0\r\n\r\n";
}

void Connection::queue_head(const HttpResponse& head, bool is_stream, size_t body_bytes) {
    if (is_stream && reader_.is_http_1_0()) keep_alive_ = false;
    outbox_ += fmt::format("HTTP/1.1 {} {}\r\n", head.status, reason_of(head.status));
    if (!head.content_type.empty() && !has_no_body(head.status)) {
        outbox_ += fmt::format("Content-Type: {}\r\n", head.content_type);
    }
    for (const auto& [name, value] : head.headers) {
        outbox_ += fmt::format("{}: {}\r\n", name, value);
    }
    if (is_stream) {
        if (!reader_.is_http_1_0()) outbox_ += "Transfer-Encoding: chunked\r\n";
    } else if (!has_no_body(head.status)) {
        outbox_ += fmt::format("Content-Length: {}\r\n", body_bytes);
    }
    if (!keep_alive_) {
        outbox_ += "Connection: close\r\n";
    } else if (reader_.is_http_1_0()) {
        outbox_ += "Connection: keep-alive\r\n";
    }
    outbox_ += "\r\n";
}

void Connection::write_more() {
    if (is_writing_ || phase_ == Phase::kClosed) return;
    if (num_written_ == sending_.size()) {
        sending_.clear();
        sending_.swap(outbox_);
        num_written_ = 0;
    }
    if (sending_.empty()) return on_all_written();
    is_writing_ = true;
    arm(write_deadline_, host_.options.write_timeout, &Connection::close);
    socket_.async_write_some(asio::buffer(sending_) + num_written_,
                             [self = shared_from_this()](error_code error, size_t num_bytes) {
                                 self->on_written(error, num_bytes);
                             });
}

void Connection::on_written(error_code error, size_t num_bytes) {
    is_writing_ = false;
    if (phase_ == Phase::kClosed) return;
    if (error) return close();
    num_written_ += num_bytes;
    write_more();
}

void Connection::on_all_written() {
    write_deadline_.cancel();
    if (phase_ != Phase::kAnswering) return;
    if (is_answer_complete_) return finish_answer();
    if (is_flush_wanted_) flush();
}

void Connection::finish_answer() {
    box_.reset();
    if (!keep_alive_ || is_draining_) return linger();
    phase_ = Phase::kReading;
    parse();
}

// ---- the end ----

void Connection::linger() {
    phase_ = Phase::kLingering;
    reader_.discard();
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    arm(read_deadline_, kLingerLimit, &Connection::on_read_deadline);
    read_more();
}

void Connection::drain() {
    is_draining_ = true;
    if (phase_ == Phase::kReading) close();
    if (phase_ == Phase::kLingering) close();
}

void Connection::close() {
    if (phase_ == Phase::kClosed) return;
    const auto self = shared_from_this();
    phase_ = Phase::kClosed;
    read_deadline_.cancel();
    write_deadline_.cancel();
    error_code ignored;
    socket_.close(ignored);
    if (const auto box = std::exchange(box_, nullptr)) box->client_gone();
    host_.on_closed(self);
}

void Connection::arm(asio::steady_timer& timer, Nanoseconds delay, void (Connection::*action)()) {
    timer.expires_after(delay);
    timer.async_wait([weak = weak_from_this(), &timer, action](error_code error) {
        const auto self = weak.lock();
        // A timer that was set again while this call was queued is not due.
        if (error || !self || timer.expiry() > asio::steady_timer::clock_type::now()) return;
        ((*self).*action)();
    });
}

}  // namespace k3pod

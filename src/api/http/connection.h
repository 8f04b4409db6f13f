#pragma once
// One client's connection. Everything here runs on the I/O thread; only the ReplyBox is shared.
//
// There is always at most one read outstanding, in every phase: while an answer is being made, it
// is what notices that the client went away, and bytes that it brings belong to the next request.

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "api/http/reply_box.h"
#include "api/http/request_reader.h"
#include "k3pod/api/http_server.h"

namespace k3pod {

class Connection : public std::enable_shared_from_this<Connection> {
  public:
    // What the server lends to its connections; outlives them.
    struct Host {
        HttpServerOptions options;
        std::function<void(HttpRequest, std::shared_ptr<ReplyBox>)> dispatch;
        std::function<void(const std::shared_ptr<Connection>&)> on_closed;
    };

    Connection(boost::asio::ip::tcp::socket socket, Host& host);

    void start();
    // Answers with `error` without reading, then closes.
    void refuse(const ApiError& error);
    // Ends after the answer under way, or at once when there is none.
    void drain();
    void close();

  private:
    enum class Phase { kReading, kAnswering, kLingering, kClosed };

    void read_more();
    void on_read(boost::system::error_code error, size_t num_bytes);
    void parse();
    void dispatch();
    void flush();
    void queue_output(ReplyBox::Output output);
    void queue_head(const HttpResponse& head, bool is_stream, size_t body_bytes);
    void write_more();
    void on_written(boost::system::error_code error, size_t num_bytes);
    void on_all_written();
    void finish_answer();
    void linger();

    void arm_read_deadline();
    void arm(boost::asio::steady_timer& timer, Nanoseconds delay, void (Connection::*action)());
    void on_read_deadline();

    Host& host_;
    boost::asio::ip::tcp::socket socket_;
    boost::asio::steady_timer read_deadline_, write_deadline_;
    RequestReader reader_;
    std::shared_ptr<ReplyBox> box_;  // of the answer under way; shared with whoever makes it
    Phase phase_ = Phase::kReading;
    RequestReader::State timed_state_ =
        RequestReader::State::kComplete;  // what the deadline is for
    std::array<char, 16 << 10> chunk_;
    bool is_reading_ = false;
    std::string outbox_, sending_;  // what to write next; what the write under way reads from
    size_t num_written_ = 0;        // of sending_
    bool is_writing_ = false;
    bool is_flush_wanted_ = false;  // the box had something to say during a write
    bool keep_alive_ = true;
    bool is_draining_ = false;
    bool is_answer_complete_ = false;
};

}  // namespace k3pod

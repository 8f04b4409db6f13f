#include "stream_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace k3pod::bench {
namespace {

using Clock = std::chrono::steady_clock;

class Connection {
  public:
    Connection(int port, double timeout_s) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
        const timeval timeout{static_cast<time_t>(timeout_s), 0};
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
        const int on = 1;
        setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        is_open_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    }
    ~Connection() { close(fd_); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    bool is_open() const { return is_open_; }
    bool send_all(const std::string& text) const {
        return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(text.size());
    }
    // More bytes at the end of `to`; false at the end or after the timeout.
    bool receive(std::string& to) const {
        char piece[16384];
        const ssize_t n = recv(fd_, piece, sizeof(piece), 0);
        if (n <= 0) return false;
        to.append(piece, static_cast<size_t>(n));
        return true;
    }

  private:
    int fd_;
    bool is_open_ = false;
};

std::string http_request(const StreamRequest& request) {
    // return_token_ids tells how many tokens an event stands for.
    const nlohmann::json body = {{"messages", {{{"role", "user"}, {"content", request.question}}}},
                                 {"temperature", 0},
                                 {"stream", true},
                                 {"ignore_eos", true},
                                 {"return_token_ids", true},
                                 {"max_tokens", request.max_tokens}};
    const std::string text = body.dump();
    return fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        text.size(), text);
}

// Takes the events out of `held`; a chunked body's size lines are between them and do no harm.
void take_events(std::string& held, double now_s, StreamTimes& times) {
    constexpr const char* kData = "data: ";
    for (size_t start; (start = held.find(kData)) != std::string::npos;) {
        const size_t end = held.find("\n\n", start);
        if (end == std::string::npos) return;
        const std::string data = held.substr(start + 6, end - start - 6);
        held.erase(0, end + 2);
        if (data == "[DONE]") {
            times.is_complete = true;
            continue;
        }
        const auto event = nlohmann::json::parse(data, nullptr, false);
        if (!event.is_object() || event.contains("error")) {
            times.error = data.substr(0, 300);
            continue;
        }
        for (const auto& choice : event.value("choices", nlohmann::json::array())) {
            const auto ids = choice.value("token_ids", nlohmann::json::array());
            times.token_s.insert(times.token_s.end(), ids.size(), now_s);
        }
    }
}

}  // namespace

StreamTimes run_stream(const StreamRequest& request) {
    StreamTimes times;
    const Connection connection(request.port, request.timeout_s);
    const auto start = Clock::now();
    if (!connection.is_open() || !connection.send_all(http_request(request))) {
        times.error = "cannot reach the endpoint";
        return times;
    }
    std::string held;
    while (!times.is_complete && connection.receive(held)) {
        take_events(held, std::chrono::duration<double>(Clock::now() - start).count(), times);
    }
    const auto expected = static_cast<size_t>(request.max_tokens);
    if (times.error.empty() && (!times.is_complete || times.token_s.size() != expected)) {
        times.error = fmt::format("{} of {} tokens came: {}", times.token_s.size(), expected,
                                  held.substr(0, 300));
    }
    times.is_complete = times.error.empty();
    if (!times.token_s.empty()) times.ttft_s = times.token_s.front();
    return times;
}

int health_status(int port) {
    const Connection connection(port, 2);
    if (!connection.is_open()) return 0;
    connection.send_all("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    std::string answer;
    while (answer.size() < 12 && connection.receive(answer)) {
    }
    return answer.size() < 12 ? 0 : std::atoi(answer.c_str() + 9);
}

}  // namespace k3pod::bench

#include "tests/support/raw_http_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace k3pod::testing {
namespace {

constexpr int kDeadlineMs = 10'000;

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

}  // namespace

RawHttpClient::RawHttpClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval deadline{.tv_sec = kDeadlineMs / 1000, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close();
}

RawHttpClient::~RawHttpClient() {
    close();
}

bool RawHttpClient::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
}

bool RawHttpClient::receive() {
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    if (fd_ < 0 || poll(&readable, 1, kDeadlineMs) != 1) return false;
    char chunk[16384];
    const ssize_t got = recv(fd_, chunk, sizeof chunk, 0);
    if (got <= 0) return false;
    inbox_.append(chunk, static_cast<size_t>(got));
    return true;
}

std::optional<std::string> RawHttpClient::read_until(std::string_view mark) {
    size_t at = inbox_.find(mark);
    while (at == std::string::npos) {
        if (!receive()) return std::nullopt;
        at = inbox_.find(mark);
    }
    std::string text = inbox_.substr(0, at + mark.size());
    inbox_.erase(0, text.size());
    return text;
}

RawResponse RawHttpClient::read_head() {
    RawResponse response;
    const std::optional<std::string> head = read_until("\r\n\r\n");
    if (!head || head->size() < 12) return response;
    response.status = std::atoi(head->c_str() + 9);
    size_t line = head->find("\r\n") + 2;
    while (line + 2 < head->size()) {
        const size_t end = head->find("\r\n", line);
        const size_t colon = head->find(": ", line);
        response.headers[lower(head->substr(line, colon - line))] =
            head->substr(colon + 2, end - colon - 2);
        line = end + 2;
    }
    return response;
}

RawResponse RawHttpClient::read_response() {
    RawResponse response = read_head();
    if (response.status == 0) return response;
    if (response.headers.count("transfer-encoding") != 0) {
        while (const auto size_line = read_until("\r\n")) {
            const size_t size = std::strtoul(size_line->c_str(), nullptr, 16);
            while (inbox_.size() < size + 2) {
                if (!receive()) return response;
            }
            response.body += inbox_.substr(0, size);
            inbox_.erase(0, size + 2);
            response.is_complete = size == 0;
            if (response.is_complete) break;
        }
        return response;
    }
    const auto length = response.headers.find("content-length");
    const size_t size = length == response.headers.end() ? 0 : std::stoul(length->second);
    while (inbox_.size() < size) {
        if (!receive()) return response;
    }
    response.body = inbox_.substr(0, size);
    inbox_.erase(0, size);
    response.is_complete = true;
    return response;
}

bool RawHttpClient::is_closed_by_server() {
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    if (!inbox_.empty() || poll(&readable, 1, kDeadlineMs) != 1) return false;
    char byte;
    return recv(fd_, &byte, 1, MSG_PEEK) <= 0;
}

void RawHttpClient::close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

void RawHttpClient::close_sending_half() {
    shutdown(fd_, SHUT_WR);
}

void RawHttpClient::reset() {
    const linger abort_on_close{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof abort_on_close);
    close();
}

std::string http_request_text(std::string_view method, std::string_view path, std::string_view body,
                              std::string_view extra_headers) {
    std::string text =
        std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n";
    text += extra_headers;
    if (!body.empty() || method == "POST") {
        if (extra_headers.find("Content-Type") == std::string_view::npos) {
            text += "Content-Type: application/json\r\n";
        }
        text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    }
    text += "\r\n";
    text += body;
    return text;
}

RawResponse http_call(int port, std::string_view method, std::string_view path,
                      std::string_view body, std::string_view extra_headers) {
    RawHttpClient client(port);
    client.send(http_request_text(method, path, body, extra_headers));
    return client.read_response();
}

}  // namespace k3pod::testing

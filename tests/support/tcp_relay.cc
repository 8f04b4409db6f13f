#include "tests/support/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>

namespace k3pod::testing {
namespace {

constexpr int kPollMs = 10;

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int connect_to(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback(port);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    close(fd);
    return -1;
}

bool has_input(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&entry, 1, 0) > 0;
}

}  // namespace

TcpRelay::TcpRelay(int target_port) : target_port_(target_port) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, generic, size) == 0 && listen(listener_, 16) == 0 &&
        getsockname(listener_, generic, &size) == 0) {
        port_ = ntohs(address.sin_port);
    }
    thread_ = std::thread([this] { run(); });
}

TcpRelay::~TcpRelay() {
    is_stopping_ = true;
    thread_.join();
    for (const auto& [near, far] : pairs_) {
        close(near);
        if (far >= 0) close(far);
    }
    close(listener_);
}

void TcpRelay::run() {
    while (!is_stopping_) {
        std::vector<pollfd> entries{{.fd = listener_, .events = POLLIN, .revents = 0}};
        for (const auto& [near, far] : pairs_) {
            if (is_frozen_ || far < 0) continue;
            entries.push_back({.fd = near, .events = POLLIN, .revents = 0});
            entries.push_back({.fd = far, .events = POLLIN, .revents = 0});
        }
        poll(entries.data(), entries.size(), kPollMs);
        if (has_input(listener_)) accept_one();
        for (const auto& [near, far] : pairs_) {
            if (is_frozen_ || far < 0) continue;
            if (has_input(near)) pass(near, far);
            if (has_input(far)) pass(far, near);
        }
    }
}

void TcpRelay::accept_one() {
    const int near = accept(listener_, nullptr, nullptr);
    if (near < 0) return;
    pairs_.emplace_back(near, target_port_ != 0 ? connect_to(target_port_) : -1);
}

void TcpRelay::pass(int from, int to) {
    std::array<std::byte, 16384> buffer;
    const ssize_t size = recv(from, buffer.data(), buffer.size(), 0);
    if (size <= 0) {
        shutdown(to, SHUT_RDWR);
        shutdown(from, SHUT_RDWR);
        return;
    }
    ssize_t sent = 0;
    while (sent < size) {
        const ssize_t n =
            send(to, buffer.data() + sent, static_cast<size_t>(size - sent), MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += n;
    }
}

}  // namespace k3pod::testing

#pragma once
// Parts of a benchmark that need a process of their own, and a line to talk to them.

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace k3pod::bench {

// One end of a line between two processes of a benchmark. Ends the program when the other end is
// gone: a benchmark with half of its processes has nothing to say.
class Line {
  public:
    explicit Line(int fd) : fd_(fd) {}
    Line(Line&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Line& operator=(Line&&) = delete;
    ~Line() {
        if (fd_ >= 0) close(fd_);
    }

    void send(const void* data, size_t num_bytes) {
        const uint64_t length = num_bytes;
        transfer(write, &length, sizeof(length));
        transfer(write, data, num_bytes);
    }
    template <class T>
    void send(const std::vector<T>& values) {
        send(values.data(), values.size() * sizeof(T));
    }
    template <class T>
    std::vector<T> receive() {
        uint64_t length = 0;
        transfer(read, &length, sizeof(length));
        std::vector<T> values(length / sizeof(T));
        transfer(read, values.data(), length);
        return values;
    }

  private:
    template <class Call, class Data>
    void transfer(Call call, Data* data, size_t num_bytes) {
        auto* at = reinterpret_cast<char*>(const_cast<std::remove_const_t<Data>*>(data));
        while (num_bytes > 0) {
            const ssize_t moved = call(fd_, at, num_bytes);
            if (moved <= 0) {
                std::fprintf(stderr, "a process of the benchmark ended early\n");
                std::_Exit(1);
            }
            at += moved;
            num_bytes -= static_cast<size_t>(moved);
        }
    }
    int fd_;
};

// A process that runs `body` with its end of a line and ends with it; killed with this object. Fork
// before UCX or threads are in use.
class Forked {
  public:
    explicit Forked(const std::function<void(Line&)>& body) : Forked(body, make_pair_of_files()) {}
    ~Forked() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    Forked(const Forked&) = delete;
    Forked& operator=(const Forked&) = delete;

    Line& line() { return line_; }

  private:
    static std::pair<int, int> make_pair_of_files() {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
        return {fds[0], fds[1]};
    }
    Forked(const std::function<void(Line&)>& body, std::pair<int, int> fds) : line_(fds.first) {
        std::fflush(nullptr);
        pid_ = fork();
        if (pid_ < 0) std::abort();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(fds.first);
            Line line(fds.second);
            body(line);
            std::_Exit(0);
        }
        close(fds.second);
    }

    Line line_;
    pid_t pid_ = 0;
};

}  // namespace k3pod::bench

#pragma once
// A child process of a transport test: started with its stdout as a pipe, killed and reaped at the
// end.

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace k3pod {

class TransportChild {
  public:
    // Runs argv[0] with the rest as arguments. Aborts the test program when that is impossible.
    explicit TransportChild(std::vector<std::string> argv) {
        int fds[2];
        if (pipe(fds) != 0) std::abort();
        pid_ = fork();
        if (pid_ < 0) std::abort();
        if (pid_ == 0) {
            dup2(fds[1], STDOUT_FILENO);
            close(fds[0]);
            close(fds[1]);
            std::vector<char*> args;
            for (std::string& arg : argv) args.push_back(arg.data());
            args.push_back(nullptr);
            execv(args[0], args.data());
            _exit(127);
        }
        close(fds[1]);
        output_ = fdopen(fds[0], "r");
    }
    ~TransportChild() { kill_and_reap(); }
    TransportChild(const TransportChild&) = delete;
    TransportChild& operator=(const TransportChild&) = delete;

    // One line of its output, without the end of line; empty when it has ended.
    std::string read_line() {
        std::string line;
        for (int c = std::fgetc(output_); c != EOF && c != '\n'; c = std::fgetc(output_)) {
            line += static_cast<char>(c);
        }
        return line;
    }
    // SIGKILL. UCX finds a dead process over shared memory only once it is reaped.
    void kill_and_reap() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        std::fclose(output_);
        pid_ = 0;
    }
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = 0;
    FILE* output_ = nullptr;
};

}  // namespace k3pod

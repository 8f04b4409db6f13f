#include "bench/exchange/perftest.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace k3pod::bench {
namespace {

constexpr const char* kPort = "13337";

const char* ucx_name(TransportKind kind) {
    switch (kind) {
        case TransportKind::kShm:
            return "posix";
        case TransportKind::kTcp:
            return "tcp";
        case TransportKind::kRc:
            return "rc";
    }
    return "";
}

pid_t start_server(TransportKind kind) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    setenv("UCX_TLS", ucx_name(kind), 1);
    (void)!freopen("/dev/null", "w", stdout);
    (void)!freopen("/dev/null", "w", stderr);
    execlp("ucx_perftest", "ucx_perftest", "-p", kPort, "-c", "1", nullptr);
    _exit(127);
}

// Until somebody listens on the port, which the first client would otherwise miss.
bool wait_for_listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::atoi(kPort)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int attempt = 0; attempt < 200; ++attempt) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        // A taken port can be seen without connecting: connecting would use the server up.
        const bool is_taken =
            bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0;
        close(fd);
        if (is_taken) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

// The last line of "-f -v" output: iterations, then the median latency in microseconds.
double run_client(TransportKind kind, int rounds) {
    const std::string command = "UCX_TLS=" + std::string(ucx_name(kind)) +
                                " ucx_perftest 127.0.0.1 -p " + kPort + " -c 0 -t ucp_am_lat -s " +
                                std::to_string(kRowBytes) + " -n " + std::to_string(rounds) +
                                " -w " + std::to_string(rounds / 4) + " -f -v 2>/dev/null";
    FILE* output = popen(command.c_str(), "r");
    if (output == nullptr) return 0;
    double median = 0;
    char text[512];
    while (std::fgets(text, sizeof(text), output) != nullptr) {
        double found = 0;
        if (std::sscanf(text, "%*d,%lf", &found) == 1) median = found;
    }
    pclose(output);
    return median;
}

}  // namespace

std::vector<double> measure_perftest(const Plan& plan) {
    std::vector<double> runs;
    for (int run = 0; run < plan.num_runs; ++run) {
        const pid_t server = start_server(plan.kind);
        const double median = wait_for_listener() ? run_client(plan.kind, plan.rounds) : 0;
        kill(server, SIGKILL);
        waitpid(server, nullptr, 0);
        if (median > 0) runs.push_back(median);
    }
    return runs;
}

}  // namespace k3pod::bench

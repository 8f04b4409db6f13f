#include "pod_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "stream_client.h"

namespace k3pod::bench {
namespace {

constexpr const char* kBinary = K3POD_BINARY_DIR "/k3pod";

// Free ports, all held until all are known.
std::vector<int> free_ports(size_t count) {
    std::vector<int> fds, ports;
    for (size_t i = 0; i < count; ++i) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        bind(fd, reinterpret_cast<sockaddr*>(&address), size);
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
        fds.push_back(fd);
        ports.push_back(ntohs(address.sin_port));
    }
    for (const int fd : fds) close(fd);
    return ports;
}

}  // namespace

PodProcess::PodProcess(const PodOptions& options) {
    char name[] = "/tmp/k3pod-bench-XXXXXX";
    dir_ = mkdtemp(name);
    write_pod_file(options);
    const std::string file = (dir_ / "pod.toml").string();
    for (int i = 1; i <= options.num_experts; ++i) {
        const std::string node = fmt::format("spark-{}", i);
        spawn({"expert", "--pod", file, "--node", node}, node);
    }
    spawn({"station", "--pod", file}, "station");
    wait_until_ready();
}

PodProcess::~PodProcess() {
    for (const pid_t pid : pids_) kill(pid, SIGTERM);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
}

void PodProcess::write_pod_file(const PodOptions& options) {
    const std::vector<int> ports = free_ports(1 + static_cast<size_t>(options.num_experts));
    port_ = ports[0];
    std::ofstream out(dir_ / "pod.toml");
    out << fmt::format(
        "[pod]\nmodel = \"{}/models/k3-tiny\"\n[station]\nlisten = \"127.0.0.1:{}\"\nmax_num_seqs "
        "= 64\n"
        "kv_tokens = 65536\n[placement]\nmode = \"{}\"\n[exchange]\ntransport = \"{}\"\n",
        K3POD_SOURCE_DIR, port_, options.mode, options.transport);
    for (int i = 1; i <= options.num_experts; ++i) {
        out << fmt::format(
            "[[expert]]\nname = \"spark-{}\"\ncontrol = \"127.0.0.1:{}\"\nexpert_budget = \"32 "
            "MiB\"\n",
            i, ports[static_cast<size_t>(i)]);
    }
}

void PodProcess::spawn(const std::vector<std::string>& arguments, const std::string& log_name) {
    const std::string log = (dir_ / (log_name + ".log")).string();
    const pid_t pid = fork();
    if (pid == 0) {
        const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        std::vector<char*> argv{const_cast<char*>(kBinary)};
        for (const std::string& argument : arguments)
            argv.push_back(const_cast<char*>(argument.c_str()));
        argv.push_back(nullptr);
        execv(kBinary, argv.data());
        _exit(127);
    }
    pids_.push_back(pid);
}

void PodProcess::wait_until_ready() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (health_status(port_) != 200) {
        if (std::chrono::steady_clock::now() > end) {
            std::fprintf(stderr, "the pod is not ready after a minute; logs are in %s\n",
                         dir_.c_str());
            std::exit(1);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

}  // namespace k3pod::bench

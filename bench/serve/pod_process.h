#pragma once
// A pod of real processes on loopback for the duration of a measurement.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace k3pod::bench {

struct PodOptions {
    int num_experts = 2;
    std::string mode = "whole";     // or "sliced"
    std::string transport = "shm";  // or "tcp"
};

class PodProcess {
  public:
    // Starts the processes and waits until /health says 200; ends the program with a sentence if
    // the pod is not ready within a minute.
    explicit PodProcess(const PodOptions& options);
    // SIGTERM to each by pid, then waits for it.
    ~PodProcess();
    PodProcess(const PodProcess&) = delete;
    PodProcess& operator=(const PodProcess&) = delete;

    int port() const { return port_; }

  private:
    void write_pod_file(const PodOptions& options);
    void spawn(const std::vector<std::string>& arguments, const std::string& log_name);
    void wait_until_ready() const;

    std::filesystem::path dir_;
    int port_ = 0;
    std::vector<pid_t> pids_;
};

}  // namespace k3pod::bench

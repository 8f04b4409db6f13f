#pragma once
// A TCP relay on 127.0.0.1 that can stop passing bytes while it keeps both connections open: a cut
// link or a stopped peer, as the other side sees it. With no target it accepts and says nothing.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace k3pod::testing {

class TcpRelay {
  public:
    // target_port 0: every connection is accepted and left alone.
    explicit TcpRelay(int target_port);
    ~TcpRelay();
    TcpRelay(const TcpRelay&) = delete;
    TcpRelay& operator=(const TcpRelay&) = delete;

    int port() const { return port_; }
    // From now on nothing passes in either direction.
    void freeze() { is_frozen_ = true; }

  private:
    void run();
    void accept_one();
    void pass(int from, int to);

    const int target_port_;
    int listener_ = -1;
    int port_ = 0;
    std::vector<std::pair<int, int>> pairs_;  // relay thread only; -1 without a target
    std::atomic<bool> is_frozen_{false};
    std::atomic<bool> is_stopping_{false};
    std::thread thread_;
};

}  // namespace k3pod::testing

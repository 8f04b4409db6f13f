#pragma once
// Tells at once when a process of this machine has ended, reaped by its parent or not. UCX's own
// check over shared memory never sees one that ends within the first keep-alive interval, nor one
// that is not reaped.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/transport/transport.h"

namespace k3pod::ucx {

// A process for good: its number may be given to another one later, the two together may not.
struct ProcessIdentity {
    int64_t pid = 0;
    uint64_t start_ticks = 0;  // since boot, from /proc; 0 when there is no such process
};

ProcessIdentity identity_of(pid_t pid);

class ProcessWatch {
  public:
    ProcessWatch() = default;
    ~ProcessWatch();
    ProcessWatch(const ProcessWatch&) = delete;
    ProcessWatch& operator=(const ProcessWatch&) = delete;

    // Once, before anything else.
    Status open();
    // Watches `process` on behalf of `peer`. kUnavailable when it is not running. On a kernel
    // without pidfd (before 5.3) nothing is watched and the answer is ok: UCX's own check has to
    // do.
    Status add(PeerId peer, const ProcessIdentity& process);
    void forget(PeerId peer);
    // Peers whose process has ended and that are not forgotten yet. Does not wait.
    std::vector<PeerId> ended() const;
    // Readable while ended() is not empty.
    int fd() const { return epoll_fd_; }

  private:
    int epoll_fd_ = -1;
    std::map<PeerId, int> pid_fds_;
};

}  // namespace k3pod::ucx

#include "transport/ucx/process_watch.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace k3pod::ucx {

// Field 22 of /proc/<pid>/stat. The second field is the program's name in parentheses and may hold
// anything, so counting starts behind the last parenthesis.
ProcessIdentity identity_of(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    ProcessIdentity identity{.pid = pid};
    const size_t end_of_name = text.rfind(')');
    if (end_of_name == std::string::npos) return identity;
    std::istringstream fields(text.substr(end_of_name + 1));
    std::string skipped;
    for (int field = 3; field < 22; ++field) fields >> skipped;
    fields >> identity.start_ticks;
    return identity;
}

ProcessWatch::~ProcessWatch() {
    for (const auto& [peer, pid_fd] : pid_fds_) close(pid_fd);
    if (epoll_fd_ >= 0) close(epoll_fd_);
}

Status ProcessWatch::open() {
    epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd_ >= 0) return Status::ok();
    return internal_error(
        fmt::format("epoll_create1: {}; raise the limit on open files", std::strerror(errno)));
}

Status ProcessWatch::add(PeerId peer, const ProcessIdentity& process) {
    const auto pid = static_cast<pid_t>(process.pid);
    const int pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pid_fd < 0 && (errno == ENOSYS || errno == EPERM)) return Status::ok();
    // The descriptor holds on to whoever has the number now; then it is seen whether that is the
    // one.
    if (pid_fd < 0 || identity_of(pid).start_ticks != process.start_ticks) {
        if (pid_fd >= 0) close(pid_fd);
        return unavailable(fmt::format("process {} has ended", process.pid));
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<uint32_t>(peer);
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, pid_fd, &event) != 0) {
        close(pid_fd);
        return internal_error(
            fmt::format("epoll_ctl for process {}: {}", process.pid, std::strerror(errno)));
    }
    pid_fds_.emplace(peer, pid_fd);
    return Status::ok();
}

void ProcessWatch::forget(PeerId peer) {
    const auto it = pid_fds_.find(peer);
    if (it == pid_fds_.end()) return;
    close(it->second);  // which takes it out of the epoll set
    pid_fds_.erase(it);
}

std::vector<PeerId> ProcessWatch::ended() const {
    epoll_event events[16];
    const int num_events = epoll_wait(epoll_fd_, events, 16, 0);
    std::vector<PeerId> peers;
    for (int i = 0; i < num_events; ++i) peers.push_back(static_cast<PeerId>(events[i].data.u32));
    return peers;
}

}  // namespace k3pod::ucx

#include "transport/ucx/wake_event.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <iterator>

namespace k3pod::ucx {

WakeEvent::~WakeEvent() {
    if (event_fd_ >= 0) close(event_fd_);
}

Status WakeEvent::open() {
    event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd_ >= 0) return Status::ok();
    return internal_error(
        fmt::format("eventfd: {}; raise the limit on open files", std::strerror(errno)));
}

void WakeEvent::sleep(int fd, int other_fd, Nanoseconds timeout) {
    {
        const std::lock_guard lock(mutex_);
        ++num_sleepers_;
    }
    pollfd fds[] = {{.fd = fd, .events = POLLIN, .revents = 0},
                    {.fd = other_fd, .events = POLLIN, .revents = 0},
                    {.fd = event_fd_, .events = POLLIN, .revents = 0}};
    const int64_t ns = std::max<int64_t>(timeout.count(), 0);
    const timespec limit{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    // An interrupted or failed poll is an early return, which callers allow for.
    (void)ppoll(fds, std::size(fds), &limit, nullptr);

    const std::lock_guard lock(mutex_);
    if (--num_sleepers_ > 0) return;
    uint64_t count = 0;
    (void)!read(event_fd_, &count, sizeof(count));
}

void WakeEvent::wake() {
    const uint64_t one = 1;
    // Fails only when the count is at its end, and then it is readable anyway.
    (void)!write(event_fd_, &one, sizeof(one));
}

}  // namespace k3pod::ucx

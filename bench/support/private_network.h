#pragma once
// A network of its own for a benchmark: only the loopback interface, so that what it listens on can
// be reached by nobody.

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace k3pod::bench {

// For this process and its children. False where that is not permitted; nothing has changed then.
inline bool enter_private_network() {
    if (unshare(CLONE_NEWNET) != 0) return false;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    const bool is_up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd >= 0) close(fd);
    return is_up;
}

}  // namespace k3pod::bench

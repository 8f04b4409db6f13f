#include "k3pod/base/listen_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace k3pod {
namespace {

std::string_view advice_for(int error_number) {
    switch (error_number) {
        case EADDRINUSE:
            return "end the process that holds the address (perhaps an older k3pod) or choose "
                   "another port in the pod file";
        case EADDRNOTAVAIL:
            return "no interface of this machine has that address; write one that it has, such as "
                   "127.0.0.1, in the pod file";
        case EACCES:
        case EPERM:
            return "ports below 1024 are for privileged processes; choose another port in the pod "
                   "file";
    }
    return "correct the address in the pod file";
}

}  // namespace

Status cannot_listen(std::string_view address, int error_number) {
    return unavailable(fmt::format("cannot listen on {}: {}; {}", address,
                                   std::strerror(error_number), advice_for(error_number)));
}

Status no_such_host(std::string_view address, std::string_view reason) {
    return unavailable(
        fmt::format("cannot listen on {}: no such host ({}); write an address of this machine, "
                    "such as 127.0.0.1, in the pod file",
                    address, reason));
}

}  // namespace k3pod

#include "control/listen_error.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace k3pod::control {
namespace {

struct FreeAddresses {
    void operator()(addrinfo* list) const {
        if (list != nullptr) freeaddrinfo(list);
    }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

std::string bind_error(const addrinfo& address) {
    const int fd = socket(address.ai_family, address.ai_socktype, address.ai_protocol);
    if (fd < 0) return std::strerror(errno);
    const int reuse = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    std::string reason;
    if (bind(fd, address.ai_addr, address.ai_addrlen) != 0 || ::listen(fd, 1) != 0) {
        reason = std::strerror(errno);
    }
    close(fd);
    return reason;
}

}  // namespace

Status check_listen_address(const std::string& node, const std::string& address) {
    const size_t colon = address.rfind(':');
    const bool has_both = colon != std::string::npos && colon > 0 && colon + 1 < address.size();
    if (has_both) return Status::ok();
    return invalid_argument(fmt::format(
        "{}: control address '{}' is not host:port; correct it in the pod file", node, address));
}

Status listen_error(const std::string& node, const std::string& address) {
    const size_t colon = address.rfind(':');
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(address.substr(0, colon).c_str(),
                                  address.substr(colon + 1).c_str(), &hints, &found);
    const AddressList owner(found);
    std::string reason = error != 0 ? gai_strerror(error) : bind_error(*found);
    if (reason.empty()) reason = "gRPC refused the address";
    return unavailable(fmt::format(
        "{}: cannot listen on control address {}: {}; stop the process that uses it (perhaps an "
        "older k3pod), or change the address in the pod file",
        node, address, reason));
}

}  // namespace k3pod::control

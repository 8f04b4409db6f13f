#include "control/listen_error.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

#include "k3pod/base/listen_error.h"

namespace k3pod::control {
namespace {

struct FreeAddresses {
    void operator()(addrinfo* list) const {
        if (list != nullptr) freeaddrinfo(list);
    }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// errno of the first step that fails; 0 when none does.
int bind_error(const addrinfo& address) {
    const int fd = socket(address.ai_family, address.ai_socktype, address.ai_protocol);
    if (fd < 0) return errno;
    const int reuse = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    int error = 0;
    if (bind(fd, address.ai_addr, address.ai_addrlen) != 0 || ::listen(fd, 1) != 0) error = errno;
    close(fd);
    return error;
}

Status why_not(const std::string& address) {
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int unknown =
        getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
    const AddressList owner(found);
    if (unknown != 0) return no_such_host(address, gai_strerror(unknown));
    const int error = bind_error(*found);
    if (error != 0) return cannot_listen(address, error);
    return unavailable(
        fmt::format("cannot listen on {}: gRPC refuses the address; choose another "
                    "one in the pod file",
                    address));
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
    return why_not(address).with_context(fmt::format("[[expert]] {} control", node));
}

}  // namespace k3pod::control

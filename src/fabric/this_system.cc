// This machine: /proc and /sys, libibverbs, the kernel's routes, and the driver's own tool.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "fabric/verbs.h"
#include "k3pod/fabric/facts.h"

namespace k3pod {
namespace fabric {
namespace {

namespace fs = std::filesystem;

struct Socket {
    int fd = -1;
    ~Socket() {
        if (fd >= 0) close(fd);
    }
};

std::string address_text(const sockaddr* address) {
    std::array<char, NI_MAXHOST> text{};
    const socklen_t size =
        address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const int failed =
        getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    return failed != 0 ? std::string() : std::string(text.data());
}

std::string interface_with(const std::string& address) {
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return {};
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr) continue;
        const int family = one->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        if (address_text(one->ifa_addr) == address) return one->ifa_name;
    }
    return {};
}

Result<std::unique_ptr<addrinfo, void (*)(addrinfo*)>> resolve(const std::string& address) {
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    const int failed = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
    if (failed != 0) return not_found(fmt::format("{}: {}", host, gai_strerror(failed)));
    return std::unique_ptr<addrinfo, void (*)(addrinfo*)>(found, freeaddrinfo);
}

class ThisSystem final : public System {
  public:
    // Not through read_text_file: files of the kernel have no size.
    Result<std::string> read(const fs::path& file) const override {
        std::ifstream in(file);
        std::string text{std::istreambuf_iterator<char>(in), {}};
        if (!in.is_open() || in.bad()) return not_found(file.string() + " cannot be read");
        if (text.ends_with('\n')) text.pop_back();
        return text;
    }

    std::vector<std::string> list(const fs::path& dir) const override {
        std::vector<std::string> names;
        std::error_code error;
        for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
            names.push_back(it->path().filename().string());
        }
        std::sort(names.begin(), names.end());
        return names;
    }

    Result<std::vector<RdmaPort>> rdma_ports() const override { return query_verbs(); }

    // Connecting a datagram socket sends nothing: the kernel looks the route up.
    Result<Route> route_to(const std::string& address) const override {
        K3POD_ASSIGN(const auto found, resolve(address));
        const Socket socket{::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
        sockaddr_storage source{};
        socklen_t size = sizeof(source);
        auto* const source_address = reinterpret_cast<sockaddr*>(&source);
        if (socket.fd < 0 || connect(socket.fd, found->ai_addr, found->ai_addrlen) != 0 ||
            getsockname(socket.fd, source_address, &size) != 0) {
            return unavailable(fmt::format("no route: {}", std::strerror(errno)));
        }
        const std::string text = address_text(source_address);
        return Route{text, interface_with(text)};
    }

    Result<std::string> gpu_lines() const override {
        const std::string command = fmt::format(
            "timeout 5 nvidia-smi --query-gpu={} --format=csv,noheader,nounits 2>&1", kGpuQuery);
        std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
        if (!pipe) return unavailable(fmt::format("nvidia-smi: {}", std::strerror(errno)));
        std::string text;
        std::array<char, 4096> block{};
        while (const size_t size = fread(block.data(), 1, block.size(), pipe.get())) {
            text.append(block.data(), size);
        }
        if (pclose(pipe.release()) == 0) return text;
        return unavailable(fmt::format("nvidia-smi fails: {}", text.substr(0, text.find('\n'))));
    }
};

}  // namespace
}  // namespace fabric

std::unique_ptr<System> this_system() {
    return std::make_unique<fabric::ThisSystem>();
}

}  // namespace k3pod

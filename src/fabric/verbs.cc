#include "fabric/verbs.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

namespace k3pod::fabric {
namespace {

struct CloseDevice {
    void operator()(ibv_context* context) const { ibv_close_device(context); }
};
using Context = std::unique_ptr<ibv_context, CloseDevice>;

// The codes of the InfiniBand specification: lanes, and Gb/s a lane after line coding.
int lanes_of(uint8_t width) {
    switch (width) {
        case 1:
            return 1;
        case 2:
            return 4;
        case 4:
            return 8;
        case 8:
            return 12;
        case 16:
            return 2;
    }
    return 0;
}

double lane_gigabits(uint32_t speed) {
    switch (speed) {
        case 1:
            return 2.5;
        case 2:
            return 5;
        case 4:
        case 8:
            return 10;
        case 16:
            return 14;
        case 32:
            return 25;
        case 64:
            return 50;
        case 128:
            return 100;
        case 256:
            return 200;
    }
    return 0;
}

int32_t mtu_bytes(ibv_mtu mtu) {
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0;
}

std::string gid_text(const ibv_gid& gid) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
    return text.data();
}

std::vector<Gid> read_gids(ibv_context* context, uint8_t port, int table_size) {
    std::vector<Gid> gids;
    for (int i = 0; i < table_size; ++i) {
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(context, port, static_cast<uint32_t>(i), &entry, 0) != 0) continue;
        gids.push_back({i, gid_text(entry.gid), entry.gid_type == IBV_GID_TYPE_ROCE_V2});
    }
    return gids;
}

RdmaPort read_port(ibv_context* context, const std::string& device, uint8_t number) {
    RdmaPort port;
    port.device = device;
    port.port = number;
    ibv_port_attr attributes{};
    if (ibv_query_port(context, number, &attributes) != 0) {
        port.state = "cannot be queried";
        return port;
    }
    port.is_active = attributes.state == IBV_PORT_ACTIVE;
    port.state = ibv_port_state_str(attributes.state);
    port.is_ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.rate_bits_per_s = static_cast<int64_t>(lanes_of(attributes.active_width) *
                                                lane_gigabits(attributes.active_speed) * 1e9);
    port.mtu = mtu_bytes(attributes.active_mtu);
    port.max_mtu = mtu_bytes(attributes.max_mtu);
    port.gids = read_gids(context, number, attributes.gid_tbl_len);
    return port;
}

}  // namespace

Result<std::vector<RdmaPort>> query_verbs() {
    int num_devices = 0;
    const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> devices(
        ibv_get_device_list(&num_devices), [](ibv_device** list) {
            if (list != nullptr) ibv_free_device_list(list);
        });
    if (!devices) {
        return unavailable(
            fmt::format("libibverbs finds no RDMA on this machine: {}", std::strerror(errno)));
    }
    std::vector<RdmaPort> ports;
    for (int i = 0; i < num_devices; ++i) {
        ibv_device* device = devices.get()[i];
        const std::string name = ibv_get_device_name(device);
        const Context context(ibv_open_device(device));
        ibv_device_attr attributes{};
        if (!context || ibv_query_device(context.get(), &attributes) != 0) {
            return unavailable(
                fmt::format("RDMA device {} cannot be opened: {}; is this user "
                            "allowed to use /dev/infiniband?",
                            name, std::strerror(errno)));
        }
        for (uint8_t port = 1; port <= attributes.phys_port_cnt; ++port) {
            ports.push_back(read_port(context.get(), name, port));
        }
    }
    return ports;
}

}  // namespace k3pod::fabric

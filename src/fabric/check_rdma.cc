// The ports that the exchange may use, and what a port that works at half its speed looks like.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "fabric/checks.h"

namespace k3pod::fabric {
namespace {

constexpr int32_t kWantedMtu = 4096;
constexpr int32_t kWantedInterfaceMtu = 9000;
constexpr int32_t kLeastLanes = 4;  // a Spark has its 200G on two functions of four lanes each
constexpr double kGen5 = 32;        // GT/s

std::string gigabits(int64_t bits_per_s) {
    return fmt::format("{:g} Gb/s", static_cast<double>(bits_per_s) / 1e9);
}

// "01:00.0" of "0002:01:00.0": the two functions of a Spark's cable differ in the domain only.
std::string_view without_domain(std::string_view pci_address) {
    const size_t colon = pci_address.find(':');
    return colon == std::string_view::npos ? pci_address : pci_address.substr(colon + 1);
}

void check_state(const RdmaPort& port, Lines& lines) {
    lines.add(port.is_active ? Verdict::kOk : Verdict::kFailure, "rdma port " + port.name(),
              port.state, "active",
              fmt::format("ip link set {} up; if it stays down, look at cable and switch port",
                          port.interface.empty() ? "its interface" : port.interface));
}

void check_rate(const RdmaPort& port, const NodeNeeds& needs, Lines& lines) {
    const int64_t wanted = needs.port_rate_bits_per_s;
    const std::string check = "link rate " + port.name();
    if (wanted == 0) return lines.ok(check, gigabits(port.rate_bits_per_s), "any");
    lines.add(port.rate_bits_per_s >= wanted ? Verdict::kOk : Verdict::kWarning, check,
              gigabits(port.rate_bits_per_s), gigabits(wanted),
              fmt::format("ethtool {}: set the switch port's speed and breakout, or change the "
                          "cable",
                          port.interface));
}

void check_mtu(const RdmaPort& port, Lines& lines) {
    const int32_t wanted = port.max_mtu > 0 ? std::min(port.max_mtu, kWantedMtu) : kWantedMtu;
    lines.add(port.mtu >= wanted ? Verdict::kOk : Verdict::kWarning, "rdma mtu " + port.name(),
              fmt::format("{}", port.mtu), fmt::format("{}", wanted),
              fmt::format("ip link set {} mtu {}, here, on the other nodes and on the switch",
                          port.interface, kWantedInterfaceMtu));
}

void check_gid(const RdmaPort& port, Lines& lines) {
    const std::string check = "gid " + port.name();
    const std::string wanted =
        port.is_ethernet ? "a RoCE v2 entry with the rail's IPv4 address" : "an entry";
    if (const auto gid = choose_gid(port)) {
        const char* why =
            port.is_ethernet ? "first RoCE v2 entry with an IPv4 address" : "first entry";
        return lines.ok(check, fmt::format("index {}, {} ({})", gid->index, gid->address, why),
                        wanted);
    }
    lines.add(Verdict::kFailure, check,
              fmt::format("none of {} entries{}", port.gids.size(),
                          port.gids.empty() ? "" : ": link-local or RoCE v1 only"),
              wanted,
              fmt::format("give {} an address by netplan, in a subnet of its own",
                          port.interface.empty() ? "the port's interface" : port.interface));
}

void check_pcie(const RdmaPort& port, Lines& lines) {
    const PcieLink& link = port.pcie;
    const std::string check = "pcie " + port.name();
    if (link.width == 0) return lines.ok(check, "not told", "any");
    const std::string found = fmt::format("x{} at {:g} GT/s", link.width, link.gigatransfers);
    const int32_t lanes = std::max(kLeastLanes, link.max_width);
    const double speed = link.max_gigatransfers > 0 ? link.max_gigatransfers : kGen5;
    const bool is_wide = link.width >= lanes, is_fast = link.gigatransfers >= speed;
    lines.add(is_wide && is_fast ? Verdict::kOk : Verdict::kWarning, check, found,
              fmt::format("x{} at {:g} GT/s", lanes, speed),
              link.max_width < kLeastLanes
                  ? "fwupdmgr update: firmware from before April 2026 wires this controller at x2"
                  : "take the machine off its power for a minute, then look again");
}

// The other function of the same cable, where the NIC has two.
const RdmaPort* sibling_of(const RdmaPort& port, const std::vector<RdmaPort>& ports) {
    if (port.pci_address.empty()) return nullptr;
    for (const RdmaPort& other : ports) {
        if (other.pci_address == port.pci_address) continue;
        if (without_domain(other.pci_address) == without_domain(port.pci_address)) return &other;
    }
    return nullptr;
}

void check_sibling(const RdmaPort& port, const NodeFacts& facts, Lines& lines) {
    const RdmaPort* other = sibling_of(port, facts.ports);
    if (other == nullptr) return;
    lines.add(other->is_active ? Verdict::kOk : Verdict::kWarning, "cable " + port.name(),
              fmt::format("its other function {} is {}", other->name(), other->state),
              "both functions of the cable active",
              fmt::format("ip link set {} up; one function carries half of the cable",
                          other->interface.empty() ? "its interface" : other->interface));
}

std::string names_of(const std::vector<RdmaPort>& ports) {
    std::string names;
    for (const RdmaPort& port : ports) names += (names.empty() ? "" : ", ") + port.name();
    return names;
}

// "mlx5_0" is its first port.
const RdmaPort* find_port(const NodeFacts& facts, const std::string& device) {
    const auto found =
        std::find_if(facts.ports.begin(), facts.ports.end(), [&](const RdmaPort& port) {
            return device.empty() ? port.is_active
                                  : port.name() == device || port.name() == device + ":1";
        });
    return found == facts.ports.end() ? nullptr : &*found;
}

}  // namespace

void check_rdma(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines) {
    const std::string there = facts.ports.empty() ? facts.why_no_ports : names_of(facts.ports);
    if (needs.transport != TransportName::kRc) {
        return lines.ok("rdma", there, "not needed (transport is not rc)");
    }
    const RdmaPort* port = find_port(facts, needs.device);
    const std::string wanted = needs.device.empty() ? "an active port" : "device " + needs.device;
    if (port == nullptr) {
        return lines.add(Verdict::kFailure, "rdma", there, wanted,
                         facts.ports.empty()
                             ? "apt-get install rdma-core; ibv_devinfo must list a device"
                             : "write one of the ports found as device in the pod file");
    }
    lines.ok("rdma", there, wanted);
    check_state(*port, lines);
    check_rate(*port, needs, lines);
    check_mtu(*port, lines);
    check_gid(*port, lines);
    check_pcie(*port, lines);
    check_sibling(*port, facts, lines);
}

}  // namespace k3pod::fabric

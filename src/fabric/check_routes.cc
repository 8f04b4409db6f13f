#include <fmt/format.h>

#include <algorithm>

#include "fabric/checks.h"

namespace k3pod::fabric {
namespace {

// The interface that the data plane uses: itself over tcp, its port's over rc.
std::string data_interface(const NodeFacts& facts, const NodeNeeds& needs) {
    if (needs.transport != TransportName::kRc) return needs.device;
    for (const RdmaPort& port : facts.ports) {
        if (port.name() == needs.device) return port.interface;
    }
    return {};
}

}  // namespace

void check_routes(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines) {
    const std::string wanted = data_interface(facts, needs);
    for (const PeerRoute& peer : facts.peers) {
        const std::string check = "route to " + peer.peer;
        const std::string expected = wanted.empty()
                                         ? "a route to " + peer.address
                                         : fmt::format("{} over {}", peer.address, wanted);
        if (!peer.route) {
            lines.add(Verdict::kFailure, check, peer.route.status().message(), expected,
                      "ip route; give this machine an address in that subnet, or mend the address "
                      "in the pod file");
            continue;
        }
        const std::string found = fmt::format(
            "from {} over {}", peer.route->source,
            peer.route->interface.empty() ? "an unknown interface" : peer.route->interface);
        // Control may go another way than data; that it does is worth a look.
        const bool is_same = wanted.empty() || peer.route->interface == wanted;
        lines.add(is_same ? Verdict::kOk : Verdict::kWarning, check, found, expected,
                  fmt::format("one subnet for each NIC function; ip addr show {}", wanted));
    }
}

}  // namespace k3pod::fabric

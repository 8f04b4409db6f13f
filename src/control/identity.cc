#include "control/identity.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace k3pod::control {
namespace {

// What both sides are, so that nobody has to guess which of them is the old one.
std::string describe(const NodeIdentity& node) {
    return fmt::format("{}: control version {}, wire version {}, build '{}'", node.node,
                       node.control_version, node.wire_version, node.build_id);
}

// "1.13.1 (/usr/lib/libucp.so.0)" -> "1.13.1".
std::string_view release_of(std::string_view ucx_version) {
    return ucx_version.substr(0, ucx_version.find(' '));
}

}  // namespace

Status check_same_release(const NodeIdentity& station, const NodeIdentity& server) {
    const auto refuse = [&](std::string_view what, const auto& at_station, const auto& at_server,
                            std::string_view advice) {
        return failed_precondition(fmt::format(
            "{} differs: '{}' on {}, '{}' on {}; {} ({}; {})", what, at_station, station.node,
            at_server, server.node, advice, describe(station), describe(server)));
    };
    constexpr std::string_view kSameBuild =
        "install the same k3pod build on both nodes and restart the older one";

    if (station.control_version != server.control_version) {
        return refuse("control version", station.control_version, server.control_version,
                      kSameBuild);
    }
    if (station.wire_version != server.wire_version) {
        return refuse("wire version", station.wire_version, server.wire_version, kSameBuild);
    }
    if (station.build_id != server.build_id) {
        return refuse("build", station.build_id, server.build_id, kSameBuild);
    }
    if (station.transport != server.transport) {
        return refuse("transport", station.transport, server.transport,
                      "start both nodes with the same pod file");
    }
    if (release_of(station.ucx_version) != release_of(server.ucx_version)) {
        return refuse("UCX version", station.ucx_version, server.ucx_version,
                      "install the same UCX release on both nodes");
    }
    const bool both_read_it = station.model_fingerprint != 0 && server.model_fingerprint != 0;
    if (both_read_it && station.model_fingerprint != server.model_fingerprint) {
        return refuse("model fingerprint", fmt::format("{:016x}", station.model_fingerprint),
                      fmt::format("{:016x}", server.model_fingerprint),
                      "copy the same checkpoint to both nodes");
    }
    return Status::ok();
}

}  // namespace k3pod::control

#include "transport/ucx/address.h"

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <cstring>

#include "k3pod/wire/codec.h"
#include "transport/ucx/settings.h"

namespace k3pod::ucx {
namespace {

struct Envelope {
    uint32_t magic = 0x4155334bu;  // "K3UA" in memory order
    uint8_t kind = 0;
    uint8_t reserved = 0;
    uint8_t ucx_major = 0;
    uint8_t ucx_minor = 0;
    uint32_t address_bytes = 0;
    uint32_t address_check = 0;
    ProcessIdentity process;
};
static_assert(sizeof(Envelope) == 32);

Envelope make_envelope(TransportKind kind, const UcxAddress& address) {
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, &minor, &release);
    return {.kind = static_cast<uint8_t>(kind),
            .ucx_major = static_cast<uint8_t>(major),
            .ucx_minor = static_cast<uint8_t>(minor),
            .address_bytes = static_cast<uint32_t>(address.worker.size()),
            .address_check = wire::payload_checksum(address.worker),
            .process = address.process};
}

// Ok when `found` is what this process would have written for the address behind it.
Status compare(const Envelope& found, const Envelope& expected, const std::string& peer_name) {
    if (found.magic != expected.magic || found.address_bytes != expected.address_bytes ||
        found.address_check != expected.address_check ||
        found.kind > static_cast<uint8_t>(TransportKind::kRc)) {
        return invalid_argument(
            fmt::format("address of {} is damaged or none of UCX: {} of {} bytes, checksum "
                        "{:#010x} of {:#010x}",
                        peer_name, expected.address_bytes, found.address_bytes,
                        expected.address_check, found.address_check));
    }
    if (found.kind != expected.kind) {
        return failed_precondition(
            fmt::format("{} uses {}, this node {}; every node needs the same [exchange] transport",
                        peer_name, settings_of(static_cast<TransportKind>(found.kind)).name,
                        settings_of(static_cast<TransportKind>(expected.kind)).name));
    }
    if (found.ucx_major != expected.ucx_major || found.ucx_minor != expected.ucx_minor) {
        return failed_precondition(fmt::format(
            "{} runs UCX {}.{}, this node {}.{}; install one release on every node", peer_name,
            found.ucx_major, found.ucx_minor, expected.ucx_major, expected.ucx_minor));
    }
    return Status::ok();
}

}  // namespace

std::vector<std::byte> wrap_address(TransportKind kind, const UcxAddress& address) {
    const Envelope envelope = make_envelope(kind, address);
    std::vector<std::byte> wrapped(sizeof(envelope) + address.worker.size());
    std::memcpy(wrapped.data(), &envelope, sizeof(envelope));
    std::memcpy(wrapped.data() + sizeof(envelope), address.worker.data(), address.worker.size());
    return wrapped;
}

Result<UcxAddress> unwrap_address(TransportKind kind, std::span<const std::byte> wrapped,
                                  const std::string& peer_name) {
    Envelope found;
    if (wrapped.size() <= sizeof(found)) {
        return invalid_argument(
            fmt::format("address of {} is {} bytes, expected more than {}; it is no address of UCX",
                        peer_name, wrapped.size(), sizeof(found)));
    }
    std::memcpy(&found, wrapped.data(), sizeof(found));
    const UcxAddress address{.worker = wrapped.subspan(sizeof(found)), .process = found.process};
    K3POD_TRY(compare(found, make_envelope(kind, address), peer_name));
    return address;
}

}  // namespace k3pod::ucx

#pragma once
// The bytes handed over by control: UCX's worker address in an envelope that is checked before UCX
// sees it, because UCX trusts every byte of an address.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/transport/transport.h"
#include "transport/ucx/process_watch.h"

namespace k3pod::ucx {

struct UcxAddress {
    std::span<const std::byte> worker;  // what ucp_ep_create takes
    ProcessIdentity process;            // the peer's, in its own view
};

std::vector<std::byte> wrap_address(TransportKind kind, const UcxAddress& address);

// What is inside; `worker` is a view into `wrapped`. kInvalidArgument for damaged bytes,
// kFailedPrecondition for another transport or another release of UCX; names the peer and both
// sides.
Result<UcxAddress> unwrap_address(TransportKind kind, std::span<const std::byte> wrapped,
                                  const std::string& peer_name);

}  // namespace k3pod::ucx

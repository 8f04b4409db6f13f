#pragma once
// Why a server cannot listen at an address. gRPC only says that it cannot.

#include <string>

#include "k3pod/base/status.h"

namespace k3pod::control {

// kInvalidArgument unless the address is host:port. gRPC would choose a port by itself.
Status check_listen_address(const std::string& node, const std::string& address);

// kUnavailable with the reason, which a plain socket on the same address has to find out.
Status listen_error(const std::string& node, const std::string& address);

}  // namespace k3pod::control

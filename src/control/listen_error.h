#pragma once
// Why a server could not listen. gRPC only says that it could not.

#include <string>

#include "k3pod/base/status.h"

namespace k3pod::control {

// Tries the address once more with a plain socket to learn the reason. kUnavailable, or
// kInvalidArgument when the address is not host:port.
Status listen_error(const std::string& node, const std::string& address);

}  // namespace k3pod::control

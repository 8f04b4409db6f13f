#pragma once
// Why nothing can listen at an address, and what to do: the same words for HTTP and control.

#include <string_view>

#include "k3pod/base/status.h"

namespace k3pod {

// kUnavailable for what socket(), bind() or listen() left in errno.
Status cannot_listen(std::string_view address, int error_number);

// kUnavailable when the host of the address has no address; `reason` is the resolver's.
Status no_such_host(std::string_view address, std::string_view reason);

}  // namespace k3pod

#pragma once
// What a Status means to an HTTP client.

#include "api/error_body.h"
#include "k3pod/base/status.h"

namespace k3pod {

// A message that begins with a field's name and a colon ("messages[2]: ...") gives `param`.
ApiError to_api_error(const Status& status);

}  // namespace k3pod

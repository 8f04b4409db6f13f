#pragma once
// Whether two processes may work together.

#include "k3pod/base/status.h"
#include "k3pod/control/control.h"

namespace k3pod::control {

// kFailedPrecondition with the first difference, both values, and the versions and builds of both.
Status check_same_release(const NodeIdentity& station, const NodeIdentity& server);

}  // namespace k3pod::control

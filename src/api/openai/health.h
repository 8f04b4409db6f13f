#pragma once
// Whether the pod makes progress, for supervisors and load balancers.

#include "k3pod/api/http_server.h"
#include "k3pod/base/clock.h"
#include "k3pod/engine/generation_service.h"

namespace k3pod {

// 200 while requests are accepted and tokens come; else 503 with the reason. `stall_limit`: the
// longest time without progress while there is work.
HttpResponse health_response(const ServiceState& state, Nanoseconds stall_limit);

}  // namespace k3pod

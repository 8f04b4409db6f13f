#pragma once
// Counts requests by handler, method and class of status, under the names that dashboards for
// Python servers use.

#include <memory>
#include <string>

#include "k3pod/api/http_server.h"
#include "k3pod/base/clock.h"
#include "k3pod/metrics/metrics.h"

namespace k3pod {

// A reply that also counts. `handler` is a route, never a path of the client's making. A request
// whose client left before the head of the answer counts as 4xx.
std::shared_ptr<HttpReply> make_counting_reply(std::shared_ptr<HttpReply> reply,
                                               MetricsRegistry& metrics, const Clock& clock,
                                               std::string handler, std::string method);

}  // namespace k3pod

#pragma once
// The yardstick: ucx_perftest of the same machine over the same transport.

#include <optional>

#include "bench/exchange/plan.h"

namespace k3pod::bench {

// Microseconds one way for a 7 KiB active message, one entry per run; empty when ucx_perftest
// (package ucx-utils) is not installed or fails. It does not touch the bytes that arrive.
std::vector<double> measure_perftest(const Plan& plan);

}  // namespace k3pod::bench

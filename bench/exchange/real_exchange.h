#pragma once
// The whole exchange: ExchangeClient and ExchangeServer as in a pod, each server a process of its
// own, no thread pinned, the waiting policy of the pod file's default. The servers' work is
// nothing.

#include <vector>

#include "bench/exchange/plan.h"

namespace k3pod::bench {

// Microseconds of dispatch and combine of one row that every server has shards for; one entry per
// run.
std::vector<Percentiles> measure_exchange(const Plan& plan);

}  // namespace k3pod::bench

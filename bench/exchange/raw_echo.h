#pragma once
// The bare transport: a row to each server and back, no exchange around it. One thread answers for
// all servers on a core of its own, the station spins on another.

#include <vector>

#include "bench/exchange/plan.h"

namespace k3pod::bench {

// Microseconds from the first send to the last reply, its row copied out; one entry per run.
std::vector<Percentiles> measure_raw(const Plan& plan);

}  // namespace k3pod::bench

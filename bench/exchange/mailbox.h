#pragma once
// The ceiling of shared memory: rows copied into mailboxes and out of them by two threads, with a
// number behind each row that says it is there. No queue, no checks, no library: what the two cores
// can do.

#include <vector>

#include "bench/exchange/plan.h"

namespace k3pod::bench {

// Microseconds for a row to each server and back, copied in and out on both sides; one entry per
// run.
std::vector<Percentiles> measure_mailboxes(const Plan& plan);

}  // namespace k3pod::bench

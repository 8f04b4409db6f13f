#pragma once
// What the station's end of the exchange costs by itself: every frame is answered at once, by the
// same thread. One process, so the figure hardly depends on what else the machine does.

#include <vector>

#include "bench/exchange/plan.h"

namespace k3pod::bench {

// Microseconds of dispatch and combine of one row that every server has shards for; one entry per
// run.
std::vector<Percentiles> measure_station_alone(const Plan& plan);

}  // namespace k3pod::bench

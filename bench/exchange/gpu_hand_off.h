#pragma once
// The hand-off of a step's graph (device/hand_off.h) to holders in this process, against bare flag
// round trips between the same GPU and a thread.

#include <vector>

#include "bench/support/samples.h"
#include "k3pod/base/status.h"

namespace k3pod::bench {

struct GpuPlan {
    int num_holders = 1;  // each a thread with a part of its own
    int num_runs = 5;
    int steps = 200;  // of a run, after a quarter as many to warm up
};

// Exchanges in one step, as K3 has MoE layers.
inline constexpr int kGpuExchanges = 92;

// Microseconds of one exchange on the GPU's clock, its share of a replayed graph of kGpuExchanges;
// one entry per run. A row of 7 KiB goes out (kernel 1) and is summed over the holders' rows when
// it comes back (kernel 2).
Result<std::vector<Percentiles>> measure_gpu_hand_off(const GpuPlan& plan);
// One kernel that raises a flag and waits for a thread's, with a row of row_bytes each way or 0.
Result<std::vector<Percentiles>> measure_bare_flag(const GpuPlan& plan, int row_bytes);

}  // namespace k3pod::bench

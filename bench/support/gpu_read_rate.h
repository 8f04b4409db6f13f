#pragma once
// The ceiling of everything that streams weights: how fast this GPU reads its memory.

#include "k3pod/base/status.h"

namespace k3pod::bench {

// Bytes a second, the best of several passes over 4 GiB that are read once each.
Result<double> gpu_read_rate();

}  // namespace k3pod::bench

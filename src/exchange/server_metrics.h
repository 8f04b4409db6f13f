#pragma once
// What an expert server counts. All of it under the drive mutex.

#include <array>
#include <cstddef>
#include <vector>

#include "exchange/tally.h"
#include "k3pod/metrics/metrics.h"
#include "k3pod/wire/frame.h"

namespace k3pod::exchange {

// Why a message was not answered.
enum class FrameDrop : uint8_t { kCorrupt, kForeign, kSession, kDuplicate, kSuperseded, kBusy };
inline constexpr size_t kNumFrameDrops = 6;

struct ServerMetrics {
    ServerMetrics(MetricsRegistry& registry, int32_t num_layers);
    void drop(FrameDrop why) { dropped[static_cast<size_t>(why)].add(); }
    void refuse(wire::FrameStatus why) { refused[static_cast<size_t>(why) - 1].add(); }
    void publish();

    Tally frames, rows;
    Histogram& frame_seconds;
    Gauge& silence_seconds;
    std::vector<Tally> entries;  // by layer
    std::vector<Tally> refused;  // by FrameStatus, without kOk
    std::vector<Tally> dropped;  // by FrameDrop
};

}  // namespace k3pod::exchange

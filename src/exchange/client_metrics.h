#pragma once
// What the station counts. All of it under the drive mutex.

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "exchange/tally.h"
#include "k3pod/metrics/metrics.h"

namespace k3pod::exchange {

// Of one expert server.
struct PeerMetrics {
    PeerMetrics(MetricsRegistry& registry, const std::string& node);
    void publish();

    Histogram& seconds;  // from the last send of a frame to its reply
    Gauge& silence_seconds;
    Gauge& holding;
    Tally rows, entries, sent_bytes, received_bytes, resends, deadline_failures, holds;
};

// Why a message was not used.
enum class ReplyDrop : uint8_t { kCorrupt, kForeign, kSession, kEpoch, kLate, kDuplicate };
inline constexpr size_t kNumReplyDrops = 6;

struct ClientMetrics {
    explicit ClientMetrics(MetricsRegistry& registry);
    void drop(ReplyDrop why) { dropped[static_cast<size_t>(why)].add(); }
    void publish();

    Gauge& peers_up;
    std::vector<Tally> dropped;  // by ReplyDrop
};

}  // namespace k3pod::exchange

#include "exchange/server_metrics.h"

#include <string>

#include "k3pod/wire/codec.h"

namespace k3pod::exchange {
namespace {

constexpr std::array<const char*, kNumFrameDrops> kFrameDropNames = {
    "corrupt", "foreign", "session", "duplicate", "superseded", "busy"};

}  // namespace

ServerMetrics::ServerMetrics(MetricsRegistry& registry, int32_t num_layers)
    : frames(registry.counter("k3pod_exchange_frames_total", "Frames answered with rows")),
      rows(registry.counter("k3pod_exchange_frame_rows_total", "Rows of the frames answered")),
      frame_seconds(registry.histogram("k3pod_exchange_frame_seconds",
                                       "Time of a frame's expert work", exchange_buckets())),
      silence_seconds(registry.gauge("k3pod_exchange_station_silence_seconds",
                                     "Time since anything was heard of the station; 0 without a "
                                     "session")) {
    for (int32_t layer = 0; layer < num_layers; ++layer) {
        entries.emplace_back(registry.counter("k3pod_experts_entries_total",
                                              "Picks worked on, by layer: the expert load of this "
                                              "node",
                                              {{"layer", std::to_string(layer)}}));
    }
    for (const auto status :
         {wire::FrameStatus::kWrongEpoch, wire::FrameStatus::kNotMyShard,
          wire::FrameStatus::kBadFrame, wire::FrameStatus::kBusy, wire::FrameStatus::kFault}) {
        const char* reason = wire::status_name(status);
        refused.emplace_back(registry.counter(
            "k3pod_exchange_refused_total", "Frames answered without rows", {{"reason", reason}}));
    }
    for (const char* reason : kFrameDropNames) {
        dropped.emplace_back(registry.counter("k3pod_exchange_frames_dropped_total",
                                              "Messages that were not answered",
                                              {{"reason", reason}}));
    }
}

void ServerMetrics::publish() {
    frames.publish();
    rows.publish();
    for (Tally& tally : entries) tally.publish();
    for (Tally& tally : refused) tally.publish();
    for (Tally& tally : dropped) tally.publish();
}

}  // namespace k3pod::exchange

#include "exchange/client_metrics.h"

namespace k3pod::exchange {
namespace {

constexpr std::array<const char*, kNumReplyDrops> kReplyDropNames = {
    "corrupt", "foreign", "session", "epoch", "late", "duplicate"};

Tally node_counter(MetricsRegistry& registry, const char* name, const char* help,
                   const std::string& node) {
    return Tally(registry.counter(name, help, {{"node", node}}));
}

}  // namespace

PeerMetrics::PeerMetrics(MetricsRegistry& registry, const std::string& node)
    : seconds(registry.histogram("k3pod_exchange_seconds",
                                 "Time from sending a frame to a server to having its reply",
                                 exchange_buckets(), {{"node", node}})),
      silence_seconds(registry.gauge("k3pod_exchange_silence_seconds",
                                     "Time since anything was heard of a server; 0 while it is "
                                     "not attached",
                                     {{"node", node}})),
      holding(registry.gauge("k3pod_exchange_holding",
                             "1 while a step is held until this server answers", {{"node", node}})),
      rows(node_counter(registry, "k3pod_exchange_rows_total", "Rows sent to a server", node)),
      entries(node_counter(registry, "k3pod_exchange_entries_total",
                           "Picks (row, expert, weight) sent to a server", node)),
      sent_bytes(node_counter(registry, "k3pod_exchange_sent_bytes_total",
                              "Bytes of request frames, headers and resends included", node)),
      received_bytes(node_counter(registry, "k3pod_exchange_received_bytes_total",
                                  "Bytes of replies that were used, headers included", node)),
      resends(node_counter(registry, "k3pod_exchange_resends_total",
                           "Frames sent again because the reply was late or damaged", node)),
      deadline_failures(node_counter(registry, "k3pod_exchange_deadline_failures_total",
                                     "Frames without a reply within the frame deadline", node)),
      holds(node_counter(registry, "k3pod_exchange_holds_total",
                         "Layers of steps that were held because this server was lost or late",
                         node)) {}

void PeerMetrics::publish() {
    rows.publish();
    entries.publish();
    sent_bytes.publish();
    received_bytes.publish();
    resends.publish();
    deadline_failures.publish();
    holds.publish();
}

ClientMetrics::ClientMetrics(MetricsRegistry& registry)
    : peers_up(registry.gauge("k3pod_exchange_peers_up", "Expert servers that are attached")) {
    for (const char* reason : kReplyDropNames) {
        dropped.emplace_back(registry.counter("k3pod_exchange_dropped_total",
                                              "Messages from servers that were not used",
                                              {{"reason", reason}}));
    }
}

void ClientMetrics::publish() {
    for (Tally& tally : dropped) tally.publish();
}

}  // namespace k3pod::exchange

#pragma once
// k3pod fabric: what the wire of a pod does, before anything is served (docs/fabric.md).

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "k3pod/base/status.h"
#include "k3pod/config/pod_config.h"

namespace k3pod {

struct FabricOptions {
    std::string node;       // serve: which [[expert]] this is
    int32_t rounds = 0;     // exchanges, or messages, of a case
    std::string constants;  // what the file for predict starts from; empty: the built-in ones
    std::string out;        // the file for predict; empty: none
    bool json = false;
};

// Answers until SIGTERM or SIGINT.
Status run_fabric_serve(const PodConfig& pod, const std::string& node);
// Bandwidth and latency to each server and to all at once.
Status run_fabric_link(const PodConfig& pod, const FabricOptions& options);
// The exchange as the pod pays it, taken apart.
Status run_fabric_hop(const PodConfig& pod, const FabricOptions& options);

// The subcommand with its own; `pod` and `options` are filled in by parsing.
class FabricCommand {
  public:
    FabricCommand(CLI::App& app, std::string& pod, FabricOptions& options);

    // What was called, on the pod file that was named.
    Status run(const PodConfig& pod) const;
    bool is_called() const;

  private:
    FabricOptions& options_;
    CLI::App *fabric_, *serve_, *link_, *hop_;
};

}  // namespace k3pod

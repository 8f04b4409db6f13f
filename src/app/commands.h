#pragma once
// The subcommands of the one binary. Each returns the process's exit status: 0 done, 1 failed with
// a sentence on stderr, 2 wrong usage.

#include <string>

#include "k3pod/base/status.h"
#include "k3pod/config/pod_config.h"

namespace k3pod {

int run_command(int argc, char** argv);

// Serves until SIGTERM or SIGINT, then drains.
Status run_station(const PodConfig& config);
Status run_expert_server(const PodConfig& config, const std::string& node);

struct AskOptions {
    std::string url;  // "http://127.0.0.1:8000"
    std::string question;
    bool thinking = true;
    bool show_thinking = false;  // reasoning on stderr
    double timeout_s = 120;
};
// Streams one chat answer to stdout.
Status run_ask(const AskOptions& options);

struct InspectOptions {
    std::string dir;            // the checkpoint folder
    bool headers_only = false;  // do not read the experts
    bool json = false;
};
// Prints what lies in a checkpoint; fails where a node would refuse it.
Status run_inspect(const InspectOptions& options);

// "0.1.0+<commit>.Release"
const std::string& build_id();
// What `k3pod version` prints.
std::string version_text();

}  // namespace k3pod

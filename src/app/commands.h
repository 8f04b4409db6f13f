#pragma once
// The subcommands of the one binary. Each returns the process's exit status: 0 done, 1 failed with
// a sentence on stderr, 2 wrong usage (1 of `plan`, whose 2 is: does not fit).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

struct PlanOptions {
    std::string config;               // a config.json; or
    std::string checkpoint;           // a model folder; neither: the pod file's
    std::vector<std::string> traces;  // popularity, besides [placement] traces
    std::string mode, pack;           // instead of the pod file's; empty: not given
    int32_t batch_tokens = 0;         // instead of the pod file's; 0: not given
    std::string out, svg;             // files to write; empty: none
    bool json = false;
};
// Prints what `pod` can hold, who holds what and how fast that is. 0 done, 1 failed, 2 the experts
// do not fit (the report says by how much).
int run_plan(PodConfig pod, const PlanOptions& options);

struct StatusOptions {
    std::string placement;  // what should be applied; empty: only that the nodes agree
};
// Prints the placement that a running pod applies, and fails where station, nodes and the file of
// the options differ.
Status run_status(const PodConfig& pod, const StatusOptions& options);

// Where the station shows its placement, and what the router picked so far.
inline constexpr std::string_view kPlacementPath = "/v1/pod/placement";
inline constexpr std::string_view kTracePath = "/v1/pod/trace";

struct PredictOptions {
    std::string placement;  // placement.json
    std::string config;     // the model's config.json; empty: of the pod file's checkpoint
    std::string constants;  // empty: those built in
    std::vector<std::string> traces;  // popularity, besides [placement] traces
    std::string pack = "mxfp4";
    int32_t batch = 1;
    int64_t context = 4096;
    int32_t drafts = 0;
    double acceptance = 0;
    int32_t chunk = 0;  // tokens of a prefill step; 0: max_batch_tokens
    bool json = false;
    std::string svg;  // a picture goes to this file; empty: none
};
// Prints what the pod would do with the placement.
Status run_predict(const PodConfig& config, const PredictOptions& options);

struct CheckOptions {
    std::string node;   // this machine as that node only; empty: as the station, and every server
    std::string model;  // a checkpoint folder instead of machines
    bool json = false;
};
// Looks at machines, or at a checkpoint, and prints one line a check; fails where one failed.
Status run_check(const PodConfig& config, const CheckOptions& options);
Status run_check_model(const CheckOptions& options);

// "0.1.0+<commit>.Release"
const std::string& build_id();
// What `k3pod version` prints.
std::string version_text();

}  // namespace k3pod

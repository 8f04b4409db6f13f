// `k3pod plan`: can the pod hold the model, who holds what, and how fast that is.

#include <cstdio>
#include <string>
#include <vector>

#include "commands.h"
#include "k3pod/base/text.h"
#include "output_files.h"
#include "plan_report.h"

namespace k3pod {
namespace {

constexpr int kDone = 0, kFailed = 1, kDoesNotFit = 2;

void apply(const PlanOptions& options, PodConfig& pod) {
    PlacementConfig& placement = pod.placement;
    if (options.mode == "auto") placement.mode = ModeChoice::kAuto;
    if (options.mode == "whole") placement.mode = ModeChoice::kWhole;
    if (options.mode == "sliced") placement.mode = ModeChoice::kSliced;
    if (options.pack == "nvfp4") placement.pack = PackChoice::kNvfp4;
    if (options.pack == "mxfp4") placement.pack = PackChoice::kMxfp4;
    if (options.batch_tokens > 0) placement.batch_tokens = options.batch_tokens;
    for (const std::string& trace : options.traces) placement.traces.emplace_back(trace);
}

// Traces of the pod file among them: `apply` has put all of them there.
Status check_files(const PodConfig& pod, const PlanOptions& options) {
    std::vector<NamedFile> inputs = {{"--pod", pod.file.string()}, {"--config", options.config}};
    for (const auto& trace : pod.placement.traces) inputs.push_back({"a trace", trace.string()});
    return check_outputs({{"--out", options.out}, {"--svg", options.svg}}, inputs);
}

Result<int> plan_and_print(PodConfig pod, const PlanOptions& options) {
    apply(options, pod);
    K3POD_TRY(check_files(pod, options));
    K3POD_ASSIGN(const PlanModel model, read_plan_model(pod, options.config, options.checkpoint));
    K3POD_ASSIGN(const PodPlan plan, plan_pod(pod, model));
    K3POD_ASSIGN(const PlanReport report, make_plan_report(pod, model, plan));
    if (plan.placement) K3POD_TRY(write_output(options.out, to_json(*plan.placement)));
    if (!options.svg.empty()) K3POD_TRY(write_output(options.svg, plan_svg(report)));
    const std::string text = options.json ? plan_json(report) : plan_text(report);
    std::fputs(text.c_str(), stdout);
    return plan.placement ? kDone : kDoesNotFit;
}

}  // namespace

int run_plan(PodConfig pod, const PlanOptions& options) {
    const Result<int> exit = plan_and_print(std::move(pod), options);
    if (exit) return *exit;
    std::fprintf(stderr, "k3pod: %s\n", escape_controls(exit.status().message()).c_str());
    return kFailed;
}

}  // namespace k3pod
